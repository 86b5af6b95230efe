"""MONITOR, SLOWLOG and LATENCY show what log/slowlog.py has recorded (SPEC C7.5)."""

from __future__ import annotations

from time import time
from typing import Final

from tuque.core.model.timers import REPLY_BYTES, TURN_WORK
from tuque.server.log.slowlog import LatencyEvent
from tuque.server.replies.errors import reply_help
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.wire.commands.arguments import NOT_INT, ArgError, Misuse
from tuque.wire.proto.resp import strict_int

BAD_SLOWLOG: Final = b"ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
SLOW_DEFAULT: Final = 10
GRAPH_ROWS: Final = 4
GRAPH_COLUMNS: Final = 80
ADVICE: Final = {
    "command": "A command that does much at once took long. SLOWLOG GET shows which: look for "
    "JSCAN or QSCAN with BUSYLOOP, QPEEK with a large count, DEBUG, CLUSTER RESET.",
    "fast-command": "A command that is fast by itself took long. It had very many arguments or "
    "large ones (SLOWLOG GET shows it), or the machine had no time for the process: look for "
    "swapping, too few processors, other load.",
    "iproto-request": "A request of an IPROTO client took long. SLOWLOG GET shows it: look "
    "for truncate, release_all, tasks_by_state and drop of large tubes.",
    "jobs-processing": "Many jobs came due in one instant. Spread DELAY and RETRY of jobs that "
    "are added together.",
    "aof-write": "The disk takes the journal slowly. Look for other writers on it.",
    "aof-fsync-always": "The disk needs long to make the journal durable, and every reply waits "
    "for it. A faster disk helps, or `appendfsync everysec`.",
}


def cmd_monitor(s: Server, c: Client, args: list[bytes]) -> None:
    """[C7.5] MONITOR: show every command here from now on; a repeat changes nothing."""
    if not c.is_monitor:
        c.is_monitor = True
        s.monitors.append(c)
    c.ok()


def cmd_slowlog(s: Server, c: Client, args: list[bytes]) -> None:
    """SLOWLOG GET [count] | LEN | RESET."""
    word = args[1].upper()
    if word == b"GET" and len(args) in (2, 3):
        most = strict_int(args[2]) if len(args) == 3 else SLOW_DEFAULT
        if most is None:
            raise ArgError(NOT_INT)
        reply_slow(s, c, int(most) if most >= 0 else len(s.slowlog.entries))
    elif word == b"LEN" and len(args) == 2:
        c.reply(len(s.slowlog.entries))
    elif word == b"RESET" and len(args) == 2:
        s.slowlog.clear()
        c.ok()
    elif word == b"HELP" and len(args) == 2:
        reply_help(s, c, b"SLOWLOG")
    else:
        raise ArgError(BAD_SLOWLOG)


def reply_slow(s: Server, c: Client, most: int) -> None:
    """The newest `most` entries, up to the size of one reply (L2.5)."""
    rows: list[object] = []
    size = 0
    spent = 0
    for e in s.slowlog.entries:
        if len(rows) >= most or spent + len(e.words) >= TURN_WORK or size > REPLY_BYTES:
            break
        spent += 1 + len(e.words)
        rows.append([e.number, e.at_s, e.spent_us, e.words])
        size += e.bytes
    s.n.work += spent
    c.reply(rows)


def cmd_latency(s: Server, c: Client, args: list[bytes]) -> None:
    """LATENCY LATEST | HISTORY event | GRAPH event | DOCTOR | RESET [event ...]."""
    word = args[1].upper()
    events = s.latency.events
    count = len(args)
    name = args[2].decode("utf-8", "replace") if count > 2 else ""
    if word == b"LATEST" and count == 2:
        c.reply([[key, *e.samples[-1], e.max_ms] for key, e in events.items()])
    elif word == b"HISTORY" and count == 3:
        event = events.get(name)
        c.reply([] if event is None else [list(pair) for pair in event.samples])
    elif word == b"GRAPH" and count == 3:
        event = events.get(name)
        if event is None:
            raise ArgError(b"ERR No samples available for event '%s'" % args[2])
        c.reply(graph(name, event, int(time())))
    elif word == b"DOCTOR" and count == 2:
        c.reply(doctor(s))
    elif word == b"RESET":
        names = [arg.decode("utf-8", "replace") for arg in args[2:]] or list(events)
        c.reply(sum([events.pop(key, None) is not None for key in names]))
    elif word == b"HELP" and count == 2:
        reply_help(s, c, b"LATENCY")
    else:
        raise Misuse(args[1])


def graph(name: str, event: LatencyEvent, now_s: int) -> str:
    """A column per sample, the newest on the right, with its age below."""
    samples = list(event.samples)[-GRAPH_COLUMNS:]
    values = [spent_ms for _, spent_ms in samples]
    low, high = min(values), max(values)
    head = f"{name} - high {high} ms, low {low} ms (all time high {event.max_ms} ms)"
    lines = [head, "-" * len(head)]
    levels = [
        GRAPH_ROWS if high == low else 1 + (value - low) * (GRAPH_ROWS - 1) // (high - low)
        for value in values
    ]
    for row in range(GRAPH_ROWS, 0, -1):
        lines.append("".join(["#" if level >= row else " " for level in levels]).rstrip())
    ages = [age(now_s - at_s) for at_s, _ in samples]
    lines.append("")
    for row in range(max([len(text) for text in ages])):
        lines.append("".join([text[row : row + 1] or " " for text in ages]).rstrip())
    return "\n".join(lines) + "\n"


def age(seconds: int) -> str:
    """A time span in its largest unit that fits."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"


def doctor(s: Server) -> str:
    """An assessment of the samples, and advice, as text."""
    if s.latency_ms == 0:
        return (
            "Latency monitoring is off. `CONFIG SET latency-monitor-threshold 100` keeps what "
            "takes 100 ms or longer; ask again after a while.\n"
        )
    if not s.latency.events:
        return f"Nothing took {s.latency_ms} ms or longer. All is well.\n"
    parts = []
    for name, event in s.latency.events.items():
        values = [spent_ms for _, spent_ms in event.samples]
        span_s = max(1, event.samples[-1][0] - event.samples[0][0])
        parts.append(
            f"{name}: {len(values)} slow seconds within {age(span_s)}, mean "
            f"{sum(values) // len(values)} ms, worst {event.max_ms} ms.\n"
            f"    {ADVICE.get(name, 'SLOWLOG GET and INFO may tell more.')}\n"
        )
    return "\n".join(parts)
