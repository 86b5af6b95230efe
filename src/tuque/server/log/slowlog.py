"""What the server observes about itself: MONITOR lines, slow commands, latency (SPEC C7.5).

Keeps bounded figures. admin/monitor.py shows them.
"""

from __future__ import annotations

from collections import deque
from time import time, time_ns
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuque.server.state.client import Connection
    from tuque.server.state.server import Server

SHOWN_ARGS: Final = 64
SHOWN_BYTES: Final = 1_024
SLOW_ARGS_MAX: Final = 32
SLOW_ARG_BYTES: Final = 128
SLOW_BYTES_MAX: Final = 16 << 20  # of all entries; the oldest are dropped first
SLOW_DROPS: Final = 1_000  # entries that go at once when there are too many
ENTRY_BYTES: Final = 300
WORD_BYTES: Final = 60  # overhead per word
LATENCY_SAMPLES: Final = 160  # per event, one a second at most
LATENCY_EVENTS: Final = 64
REDACTED: Final = b"(redacted)"
HIDDEN: Final = (b"requirepass", b"cluster-secret", b"cluster-secret-also")
PLAIN_WORDS: Final = (b"on", b"off", b"nopass", b"resetpass", b"reset", b"iproto", b"noiproto")

_SIGNS: Final = {92: "\\\\", 34: '\\"', 10: "\\n", 13: "\\r", 9: "\\t", 7: "\\a", 8: "\\b"}
_QUOTED: Final = [
    _SIGNS.get(byte, chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in range(256)
]


class SlowEntry:
    """One slow command: when (unix s), duration (us), its words, cut."""

    def __init__(self, number: int, at_s: int, spent_us: int, words: list[bytes]) -> None:
        self.number = number
        self.at_s = at_s
        self.spent_us = spent_us
        self.words = words
        self.bytes = ENTRY_BYTES + sum([len(word) + WORD_BYTES for word in words])


class SlowLog:
    """The latest slow commands, newest first; their numbers never restart."""

    def __init__(self) -> None:
        self.entries: deque[SlowEntry] = deque()
        self.next_number = 0
        self.bytes = 0  # memory of the entries, roughly

    def note(self, at_s: int, spent_us: int, args: list[bytes], most: int) -> None:
        """Add a command; keep the latest `most`."""
        entry = SlowEntry(self.next_number, at_s, spent_us, cut_words(args))
        self.entries.appendleft(entry)
        self.bytes += entry.bytes
        self.next_number += 1
        for _ in range(SLOW_DROPS):
            if len(self.entries) <= most and self.bytes <= SLOW_BYTES_MAX:
                break
            self.bytes -= self.entries.pop().bytes

    def clear(self) -> None:
        """Remove all entries."""
        self.entries.clear()
        self.bytes = 0


class LatencyEvent:
    """Samples of one kind of event: (unix s, ms), the worst per second."""

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=LATENCY_SAMPLES)
        self.max_ms = 0

    def note(self, at_s: int, spent_ms: int) -> None:
        """Add a sample."""
        self.max_ms = max(self.max_ms, spent_ms)
        if self.samples and self.samples[-1][0] == at_s:
            self.samples[-1] = (at_s, max(spent_ms, self.samples[-1][1]))
        else:
            self.samples.append((at_s, spent_ms))


class Latency:
    """Samples by name of event, in order of first occurrence."""

    def __init__(self) -> None:
        self.events: dict[str, LatencyEvent] = {}

    def note(self, name: str, at_s: int, spent_ms: int) -> None:
        """Add a sample; names beyond LATENCY_EVENTS are ignored."""
        event = self.events.get(name)
        if event is None:
            if len(self.events) >= LATENCY_EVENTS:
                return
            event = self.events[name] = LatencyEvent()
        event.note(at_s, spent_ms)


def look(s: Server) -> None:
    """Housekeeping: record the peak of memory."""
    s.used_peak_bytes = max(s.used_peak_bytes, int(s.n.used_bytes()))


def feed_monitors(s: Server, c: Connection, args: list[bytes]) -> None:
    """[C7.5] Show a command to every monitor: `+<s>.<us> [<address>] "word" ...`.

    Monitors on RESP3 are Redis clients: they expect a database before the address.
    """
    seconds, rest_ns = divmod(time_ns(), 1_000_000_000)
    words = " ".join([quoted(word) for word in shown_words(without_secrets(s, args))])
    stamp = f"+{seconds}.{rest_ns // 1000:06d}"
    for monitor in s.monitors:
        if not monitor.is_closed:
            where = f"0 {c.address}" if monitor.resp3 else c.address
            line = f"{stamp} [{where}] {words}\r\n".encode()
            monitor.out.append(line)
            s.figures.much_bytes += len(line)  # L2.8
            s.touch(monitor)


def note_slow(s: Server, args: list[bytes], spent_ns: int) -> None:
    """Add a command to the slow log."""
    most = s.cfg.slowlog_max_len
    s.slowlog.note(int(time()), spent_ns // 1000, without_secrets(s, args), most)


def note_latency(s: Server, event: str, spent_ns: int) -> None:
    """Record the duration of an event, if it reaches the threshold."""
    spent_ms = spent_ns // 1_000_000
    if 0 < s.latency_ms <= spent_ms:
        s.latency.note(event, int(time()), spent_ms)


def without_secrets(s: Server, args: list[bytes]) -> list[bytes]:
    """The words without passwords: those of AUTH, HELLO AUTH, CONFIG SET of a secret."""
    name = args[0].upper()
    if name == b"AUTH":
        return [args[0]] + [REDACTED] * (len(args) - 1)
    if name == b"HELLO":
        return without_words_of_hello(args)
    if name == b"CONFIG" and len(args) > 2:
        return without_secret_values(s, args)
    if name == b"ACL":
        return without_words_of_users(args)
    return args


def without_words_of_hello(args: list[bytes]) -> list[bytes]:
    """HELLO without what follows AUTH, or a word that may be meant so."""
    words = list(args)
    at = 1
    while at < len(words):
        word = words[at].upper()
        if at > 1 and word == b"SETNAME":
            at += 1
        elif at > 1 or word == b"AUTH":  # also where it does not belong
            words[at + 1 :] = [REDACTED] * len(words[at + 1 :])
        at += 1
    return words


def without_secret_values(s: Server, args: list[bytes]) -> list[bytes]:
    """CONFIG without what may be a secret, also where the command is wrong."""
    word = args[1].upper()
    if word == b"GET":
        return args
    if word != b"SET":
        return [*args[:2], *[REDACTED] * (len(args) - 2)]
    option = args[2].lower().replace(b"_", b"-")
    name_here = option.replace(b"-", b"_").decode("latin-1")
    if len(args) > 3 and (len(args) > 4 or option in HIDDEN or not hasattr(s.cfg, name_here)):
        return [*args[:3], *[REDACTED] * (len(args) - 3)]
    return args


def without_words_of_users(args: list[bytes]) -> list[bytes]:
    """[N4] ACL without what may be a password or its hash (N4.5)."""
    words = list(args[:3])
    if len(words) == 3 and words[2][:1] in (b">", b"<", b"#", b"!"):  # the name was forgotten
        words[2] = REDACTED
    for word in args[3:]:
        is_right = word[:1] in (b"+", b"-", b"~") or word.lower() in PLAIN_WORDS
        words.append(word if is_right else REDACTED)
    return words


def shown_words(args: list[bytes]) -> list[bytes]:
    """The words as monitors see them: at most 64, each at most 1024 bytes (C7.10)."""
    if len(args) <= SHOWN_ARGS and all(len(word) <= SHOWN_BYTES for word in args):
        return args
    return cut_words(args, SHOWN_ARGS, SHOWN_BYTES)


def quoted(word: bytes) -> str:
    """A word in double quotes with C escapes."""
    return '"' + "".join([_QUOTED[byte] for byte in word]) + '"'


def cut_words(
    args: list[bytes], words_max: int = SLOW_ARGS_MAX, bytes_max: int = SLOW_ARG_BYTES
) -> list[bytes]:
    """At most so many words of at most so many bytes each; defaults: the slow log's."""
    words = args
    if len(args) > words_max:
        words = args[: words_max - 1]
    cut = [
        word
        if len(word) <= bytes_max
        else word[:bytes_max] + b"... (%d more bytes)" % (len(word) - bytes_max)
        for word in words
    ]
    if len(args) > words_max:
        cut.append(b"... (%d more arguments)" % (len(args) - words_max + 1))
    return cut
