"""CLUSTER MEETs without a link yet (SPEC K3)."""

from typing import Final, final

from mypy_extensions import i64

MEET_MS: Final = 10_000  # a longer meeting has failed
MEET_KEEP_MS: Final = 60_000  # how long a failed one is shown
DIAL_MS: Final = 1_000  # between two dials
NO_ANSWER: Final = "no answer yet"


@final
class PendingMeet:
    """An address being dialled; the node there is not known yet (K3.1)."""

    def __init__(self, host: str, port: i64, bus_port: i64, now_ms: i64) -> None:
        self.host = host
        self.port = port
        self.bus_port = bus_port
        self.until_ms = now_ms + MEET_MS
        self.dial_ms = now_ms
        self.reason = NO_ANSWER
        self.is_told = False  # its failure is logged

    def line(self) -> str:
        """Its line in CLUSTER NODES, with an unknown id."""
        return f"{'0' * 40} {self.host}:{self.port} handshake 0 0 disconnected {self.reason}\n"


@final
class Meetings:
    """All meetings, by address."""

    def __init__(self) -> None:
        self.going: dict[tuple[str, int], PendingMeet] = {}
        self.error_at = ("", 0)  # address of the latest failure
        self.error = ""  # that address and the reason
        self.failed: list[str] = []  # failures not logged yet

    def lines(self) -> str:
        """Their lines in CLUSTER NODES."""
        text = ""
        for meeting in self.going.values():
            text += meeting.line()
        return text

    def begin(self, host: str, port: i64, bus_port: i64, now_ms: i64) -> None:
        """[K3.1] Dial the node; restarts a running meeting."""
        self.forget_error(host, bus_port)
        self.going[(host, bus_port)] = PendingMeet(host, port, bus_port, now_ms)

    def to_dial(self, now_ms: i64) -> list[tuple[str, int]]:
        """[K3.2] The addresses to dial now; drops failed meetings shown long enough."""
        found: list[tuple[str, int]] = []
        for at, meeting in list(self.going.items()):
            if now_ms < meeting.until_ms and meeting.dial_ms <= now_ms:
                meeting.dial_ms = now_ms + DIAL_MS
                found.append(at)
            elif now_ms >= meeting.until_ms and not meeting.is_told:
                meeting.is_told = True
                self.failed.append(f"{at[0]}:{at[1]} failed: {meeting.reason}")
                self.note_error(at, meeting.reason)
            elif now_ms >= meeting.until_ms + MEET_KEEP_MS:
                del self.going[at]
        return found

    def fail(self, host: str, bus_port: i64, reason: str) -> None:
        """A connection or its handshake failed."""
        meeting = self.going.get((host, bus_port))
        if meeting is not None:
            meeting.reason = reason
            self.note_error((host, bus_port), reason)

    def note_error(self, at: tuple[str, int], reason: str) -> None:
        """Note the latest failure."""
        self.error_at = at
        self.error = f"{at[0]}:{at[1]} {reason}"

    def has(self, host: str, bus_port: i64) -> bool:
        """Whether a CLUSTER MEET is dialling the address."""
        return (host, bus_port) in self.going

    def end(self, host: str, bus_port: i64) -> None:
        """The meeting at that address ended with a link."""
        self.going.pop((host, bus_port), None)
        self.forget_error(host, bus_port)

    def take_failed(self) -> list[str]:
        """The failures since the last call, for the log (K3.3)."""
        failed = self.failed
        if len(failed) > 0:
            self.failed = []
        return failed

    def forget_error(self, host: str, bus_port: i64) -> None:
        """Clear the error of that address: it is linked, or met again."""
        if self.error_at == (host, int(bus_port)):
            self.error = ""
