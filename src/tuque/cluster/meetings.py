"""The CLUSTER MEETs that have not led to a link yet (SPEC K3)."""

from typing import Final, final

from mypy_extensions import i64

MEET_MS: Final = 10_000  # a meeting that takes longer has failed
MEET_KEEP_MS: Final = 60_000  # how long it is shown
DIAL_MS: Final = 1_000  # between two dials


@final
class Meeting:
    """One address that is dialled; nothing is known of the node there (K3.1)."""

    def __init__(self, host: str, port: i64, bus_port: i64, now_ms: i64) -> None:
        self.host = host
        self.port = port
        self.bus_port = bus_port
        self.until_ms = now_ms + MEET_MS
        self.dial_ms = now_ms
        self.reason = "no answer yet"

    def line(self) -> str:
        """Its line in CLUSTER NODES; the id is not known."""
        return f"{'0' * 40} {self.host}:{self.port} handshake 0 0 disconnected {self.reason}\n"


@final
class Meetings:
    """All of them, by their address."""

    def __init__(self) -> None:
        self.going: dict[tuple[str, int], Meeting] = {}

    def lines(self) -> str:
        """Their lines in CLUSTER NODES."""
        text = ""
        for meeting in self.going.values():
            text += meeting.line()
        return text

    def begin(self, host: str, port: i64, bus_port: i64, now_ms: i64) -> None:
        """[K3.1] Dial the node; a meeting with it that is going on begins anew."""
        self.going[(host, bus_port)] = Meeting(host, port, bus_port, now_ms)

    def to_dial(self, now_ms: i64) -> list[tuple[str, int]]:
        """[K3.2] The addresses to dial now; meetings that were shown long enough go."""
        found: list[tuple[str, int]] = []
        for at, meeting in list(self.going.items()):
            if now_ms < meeting.until_ms and meeting.dial_ms <= now_ms:
                meeting.dial_ms = now_ms + DIAL_MS
                found.append(at)
            elif now_ms >= meeting.until_ms + MEET_KEEP_MS:
                del self.going[at]
        return found

    def fail(self, host: str, bus_port: i64, reason: str) -> None:
        """A connection did not come about, or its handshake failed."""
        meeting = self.going.get((host, bus_port))
        if meeting is not None:
            meeting.reason = reason

    def has(self, host: str, bus_port: i64) -> bool:
        """Whether the address is dialled because of a CLUSTER MEET."""
        return (host, bus_port) in self.going

    def end(self, host: str, bus_port: i64) -> None:
        """The meeting at that address has led to a link."""
        self.going.pop((host, bus_port), None)
