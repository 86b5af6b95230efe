"""What one connection costs another: its PING beside every command, alone and 3,000 in a pipeline.

The walk goes over the command table: a row without a call here ends it. The node has 300,000
entries, and each command its costliest arguments.

python bench/costs.py [--only ROW]
"""

from __future__ import annotations

import argparse
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

import hiredis
import servers
from turns import Notes, Talk, watched

from tuque.wire.commands.bound import WHOLE
from tuque.wire.commands.rows import BOUNDS

ENTRIES: Final = 300_000
AT_ONCE: Final = 3_000
SPAN_S: Final = 2.0  # of a pipeline; then its connection closes
P99_MS: Final = 20.0
LONGEST_MS: Final = 50.0
FRAME_PAIRS: Final = 31_000_000
GLOB: Final = "*" + "[!b]" * 31 + "z*"
RARE: Final = "0 0 */28 2 1#5"
Words = tuple[Any, ...]


class Filled:
    """A node with many entries of each kind, and what names them."""

    def __init__(self, port: int, entries: int) -> None:
        talk = self.talk = Talk(port)
        self.ids: list[bytes] = talk.many([("ADDJOB", "q", "b", 0)] * entries)
        for name, type in (("t", "fifottl"), ("u", "utubettl"), ("k", "tasks"), ("d", "fifottl")):
            talk("TUBE", "CREATE", name, type)
        talk.many([("TUBE", "PUT", "t", "b", "PRI", i * 7_919 % 1_000) for i in range(entries)])
        few = entries // 10
        talk.many([("TUBE", "PUT", "u", "b", "UTUBE", i) for i in range(few)])
        talk.many([("TUBE", "PUT", "d", "b")] * few)
        self.failed = self.ids[-entries // 3 :]
        runs: list[Words] = []
        for at in range(0, len(self.failed), 1_000):
            part = self.failed[at : at + 1_000]
            for id, row in zip(part, talk("START", *part), strict=True):
                runs.append(("FAIL", id, row[0], "REASON", f"reason {len(runs)}", "FINAL"))
        talk.many(runs)
        talk.many([("SCHEDULE", "ADD", "k", f"s{i}", "CRON", RARE, "b") for i in range(10_000)])
        for i in range(256):
            talk("TOPIC", "SUBSCRIBE", "top", f"topic-{i}", "FILTER", "a", GLOB)
        self.group = talk("GROUP", "CREATE", "k", 10_000)
        talk.many([("GROUP", "CREATE", "k", 9)] * 5_000)
        self.epoch = talk("LEASE", "OPEN", "g", "me", "q")
        self.lease = ("g", self.epoch, 1)
        talk("LEASE", "NEXT", *self.lease, "COUNT", 100_000, "TTL", 600_000)
        self.few = self.ids[:1_000]
        self.pairs = [word for id in self.few[:500] for word in (id, "-")]

    def calls(self) -> dict[str, Words]:
        """A call of every row, with the costliest arguments that it takes."""
        calls = {row: call(self) for row, call in CALLS.items()}
        for name in ("ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE", "DEQUEUE"):
            calls[name] = (name, *self.ids[:5_000])
        for word in ("ACK", "RELEASE", "BURY", "PEEK", "DELETE"):
            calls[f"TUBE {word}"] = ("TUBE", word, "t", 1)
        for word in ("INFO", "STATE", "HOME"):
            calls[f"TUBE {word}"] = ("TUBE", word, "t")
        for word in ("QLEN", "PING", "ECHO"):
            calls[word] = (word, "q")
        plain = "RESET TIME INFO MONITOR BGREWRITEAOF QUIT".split()
        calls |= {word: (word,) for word in plain}
        for word in ("GROUP", "TOPIC", "WORKER", "CLUSTER", "SLOWLOG", "LATENCY"):
            calls[word] = (word, "HELP")
        for row in BOUNDS:  # those that need no more than their words
            if " " in row and row not in calls:
                calls[row] = tuple(row.split(" "))
        return calls


CALLS: Final[dict[str, Callable[[Filled], Words]]] = {
    "ADDJOB": lambda f: ("ADDJOB", "new", "b", 0, *["RETRY", 5] * 30),
    "GETJOB": lambda f: ("GETJOB", "NOHANG", "COUNT", 5_000, "FROM", "q"),
    "WORKING": lambda f: ("WORKING", f.few[0]),
    "START": lambda f: ("START", *f.few),
    "PROGRESS": lambda f: ("PROGRESS", f.few[0], "1.1.000000", "x" * 4_096),
    "RELEASE": lambda f: ("RELEASE", *f.pairs),
    "FAIL": lambda f: ("FAIL", f.few[0], "1.1.000000", "REASON", "x" * 2_048),
    "DONE": lambda f: ("DONE", *f.pairs),
    "CANCEL": lambda f: ("CANCEL", *f.few),
    "RESULT": lambda f: ("RESULT", f.few[0]),
    "WAITJOB": lambda f: ("WAITJOB", 1, *f.few[:500]),
    "UPDATEJOB": lambda f: ("UPDATEJOB", f.ids[-1], *["TTL", 9] * 79),
    "DEAD LIST": lambda f: ("DEAD", "LIST", "q.dead", "COUNT", 1_000, "REASON", GLOB),
    "DEAD SHOW": lambda f: ("DEAD", "SHOW", f.failed[0]),
    "DEAD STAT": lambda f: ("DEAD", "STAT", "q.dead"),
    "DEAD REPLAY": lambda f: ("DEAD", "REPLAY", "q.dead", "REASON", GLOB),
    "DEAD PURGE": lambda f: ("DEAD", "PURGE", "q.dead", "REASON", GLOB),
    "DEADLETTER": lambda f: ("DEADLETTER", f.few[0], "dead", "REASON", "x" * 2_048),
    "SHOW": lambda f: ("SHOW", f.few[0]),
    "JSCAN": lambda f: ("JSCAN", 0, "BUSYLOOP", "QUEUE", "nosuch", *["STATE", "acked"] * 20),
    "QSTAT": lambda f: ("QSTAT", "k"),
    "QPEEK": lambda f: ("QPEEK", "t", 1),
    "QSCAN": lambda f: ("QSCAN", 0, "BUSYLOOP"),
    "HISTORY": lambda f: ("HISTORY", "1m", *["COUNT", 2_000] * 31),
    "QLIST": lambda f: ("QLIST", "MATCH", GLOB, "SORT", "oldest", "DESC"),
    "PAUSE": lambda f: ("PAUSE", "paused", *["none"] * 62),
    "STAGE": lambda f: ("STAGE", "txn", "a", 60_000, "staged", "b"),
    "HELLO": lambda f: ("HELLO", 2, *["SETNAME", "me"] * 31),
    "PUBLISH": lambda f: ("PUBLISH", "app", 1, "txn", "nosuch"),
    "LOADJOB": lambda f: ("LOADJOB", "x" * 10_000),
    "AUTH": lambda f: ("AUTH", "x"),
    "ACL SETUSER": lambda f: ("ACL", "SETUSER", "u", *["+@all", "-@all"] * 500),
    "ACL DELUSER": lambda f: ("ACL", "DELUSER", *["nosuch"] * 1_000),
    "ACL DRYRUN": lambda f: ("ACL", "DRYRUN", "default", "GETJOB", "FROM", *["q"] * 1_000),
    "ACL GETUSER": lambda f: ("ACL", "GETUSER", "default"),
    "ACL": lambda f: ("ACL", "CAT", "inspect"),
    "COMMAND": lambda f: ("COMMAND", "DOCS"),
    "CONFIG": lambda f: ("CONFIG", "GET", *[GLOB[:128]] * 32),
    "CLIENT KILL": lambda f: ("CLIENT", "KILL", "ID", 1 << 40),
    "CLIENT": lambda f: ("CLIENT", "SETINFO", "LIB-NAME", "x" * 10_000),
    "SLOWLOG GET": lambda f: ("SLOWLOG", "GET", -1),
    "LEASE OPEN": lambda f: ("LEASE", "OPEN", "g2", "me", *[f"q{i}" for i in range(255)]),
    "LEASE NEXT": lambda f: ("LEASE", "NEXT", *f.lease, "COUNT", 100_000, "TTL", 600_000),
    "LEASE FETCH": lambda f: ("LEASE", "FETCH", *f.lease, 0, "COUNT", 1_000_000),
    "LEASE TOUCH": lambda f: ("LEASE", "TOUCH", *f.lease[:2], "TTL", 600_000),
    "LEASE NACK": lambda f: ("LEASE", "NACK", *f.lease, *f.ids[:5_000]),
    "LEASE GONE": lambda f: ("LEASE", "GONE", *f.lease, 0),
    "LEASE BEGIN": lambda f: ("LEASE", "BEGIN", *f.lease),
    "LEASE SPLIT": lambda f: ("LEASE", "SPLIT", *f.lease, 10),
    "LEASE DEFER": lambda f: ("LEASE", "DEFER", *f.lease),
    "LEASE INFO": lambda f: ("LEASE", "INFO", "g"),
    "LEASE COMMIT": lambda f: ("LEASE", "COMMIT", *f.lease),
    "LEASE RELEASE": lambda f: ("LEASE", "RELEASE", *f.lease[:2]),
    "SCHEDULE ADD": lambda f: ("SCHEDULE", "ADD", "k", "n", "CRON", "0 0 */31 * 1#5", "b"),
    "SCHEDULE LIST": lambda f: ("SCHEDULE", "LIST", "k"),
    "SCHEDULE SHOW": lambda f: ("SCHEDULE", "SHOW", "k", "s0"),
    "SCHEDULE": lambda f: ("SCHEDULE", "PAUSE", "k", "s1"),
    "LIMITS": lambda f: ("LIMITS", "k", "COUNT", 1_000),
    "GROUP CREATE": lambda f: ("GROUP", "CREATE", "k", 9, "THEN", "b"),
    "GROUP ADD": lambda f: ("GROUP", "ADD", "k", f.group, *pairs_of(f.few[:500])),
    "GROUP SHOW": lambda f: ("GROUP", "SHOW", "k", f.group),
    "GROUP RESULTS": lambda f: ("GROUP", "RESULTS", "k", f.group),
    "GROUP CHILDREN": lambda f: ("GROUP", "CHILDREN", "k", f.group, "STATE", "done"),
    "GROUP LIST": lambda f: ("GROUP", "LIST", "k", "STATE", "failed"),
    "GROUP CANCEL": lambda f: ("GROUP", "CANCEL", "k", f.group),
    "TOPIC SUBSCRIBE": lambda f: ("TOPIC", "SUBSCRIBE", "other", "q", "FILTER", "a", GLOB),
    "TOPIC ADD": lambda f: ("TOPIC", "ADD", "top", "b", 0, "HEADERS", 1, "a", "a" * 1_000),
    "WORKER HERE": lambda f: ("WORKER", "HERE", "w", "QUEUES", *["q" * 80] * 100),
    "DEBUG": lambda f: ("DEBUG", "STRUCTSIZE"),
    "TUBE CREATE": lambda f: ("TUBE", "CREATE", "t", "fifottl", "IFNOTEXISTS"),
    "TUBE PUT": lambda f: ("TUBE", "PUT", "t", "b", "PRI", 1),
    "TUBE TAKE": lambda f: ("TUBE", "TAKE", "d", "TIMEOUT", 0),
    "TUBE KICK": lambda f: ("TUBE", "KICK", "t", 1 << 40),
    "TUBE TASKS": lambda f: ("TUBE", "TASKS", "t", "READY", "COUNT", 10_000),
    "TUBE RELEASEALL": lambda f: ("TUBE", "RELEASEALL", "d"),
    "TUBE TRUNCATE": lambda f: ("TUBE", "TRUNCATE", "u"),
    "TUBE DROP": lambda f: ("TUBE", "DROP", "u"),
    "TUBE CHANGES": lambda f: ("TUBE", "CHANGES", "t", "COUNT", 1_000),
    "TUBE SUBSCRIBE": lambda f: ("TUBE", "SUBSCRIBE", *["t"] * 1_000),
    "TUBE GRANT": lambda f: ("TUBE", "GRANT", "t", "guest", "CALL"),
    "TUBE REVOKE": lambda f: ("TUBE", "REVOKE", "t", "guest", "CALL"),
    "TUBE REGISTERDRIVER": lambda f: ("TUBE", "REGISTERDRIVER", "nosuch"),
    "TUBE TOUCH": lambda f: ("TUBE", "TOUCH", "t", 1, 1),
    "SELECT": lambda f: ("SELECT", 0),
}


def pairs_of(ids: list[bytes]) -> list[Any]:
    """Indexes and ids."""
    return [word for at, id in enumerate(ids) for word in (at, id)]


def pipeline(port: int, words: Words, count: int) -> int:
    """Send a command so often, for some seconds at most; how many bytes of replies came."""
    one = hiredis.pack_command(words)
    left = count * len(one)
    piece = one * (1 + (1 << 18) // len(one))
    read, at = 0, 0
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setblocking(False)
        until_s = time.monotonic() + SPAN_S
        quiet_s = 0.3 if count > 1 else 2.0
        heard_s = time.monotonic()
        while (now_s := time.monotonic()) < until_s and now_s < heard_s + quiet_s:
            readable, writable, _ = select.select([sock], [sock] if left > 0 else [], [], 0.05)
            try:
                if writable:
                    sent = sock.send(piece[at : at + left])
                    left -= sent
                    at = (at + sent) % len(one)
                    heard_s = now_s
                if readable:
                    data = sock.recv(1 << 20)
                    if not data:
                        break
                    read += len(data)
                    heard_s = now_s
            except OSError:
                break
    return read


def frame(port: int) -> int:
    """One frame of IPROTO with very many pairs; the code of the reply."""
    header = b"\x82\x00\x0a\x01\x07"
    body = b"\xdf" + struct.pack(">I", FRAME_PAIRS) + b"\x01\x01" * FRAME_PAIRS
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.recv(128, socket.MSG_WAITALL)
        sock.sendall(b"\xce" + struct.pack(">I", len(header) + len(body)) + header + body)
        return len(sock.recv(100))


def bench_costs(run: Notes, only: str = "", entries: int = ENTRIES) -> None:
    """Walk over the table; the worst p99 and the longest wait of all, and each that is over."""
    iproto_port = servers.free_port()
    extra = ("--enable-debug-command", "yes", "--iproto-port", str(iproto_port))
    with servers.tuque(*extra) as ours:
        calls = Filled(ours.port, entries).calls()
        missing = [row for row, one in BOUNDS.items() if row not in calls and one.work != WHOLE]
        if missing:
            raise SystemExit(f"no call of these rows: {', '.join(missing)}")
        worst: list[tuple[float, float, str]] = []

        def look(name: str, waits: list[float], detail: str) -> None:
            waits.sort()
            p99, longest = waits[len(waits) * 99 // 100], waits[-1]
            worst.append((p99, longest, name))
            if p99 > P99_MS or longest > LONGEST_MS:
                run.note(f"beside {name}", longest, "ms", LONGEST_MS, False, f"p99 {p99:.1f} ms")

        for row, one in BOUNDS.items():
            if one.work == WHOLE or (only and not row.startswith(only)):
                continue
            for count in (1, AT_ONCE):
                words = calls[row]
                size, waits, _ = watched(
                    ours.port, lambda w=words, c=count: pipeline(ours.port, w, c)
                )
                look(f"{count} x {row}", waits, f"{size:,} bytes")
        if not only:
            _, waits, _ = watched(ours.port, lambda: frame(iproto_port))
            look("a frame of 62 MB over IPROTO", waits, "")
        p99, _, name = max(worst)
        run.note("worst p99 of PING beside any command", p99, "ms", P99_MS, False, name)
        _, longest, name = max(worst, key=lambda found: found[1])
        run.note("longest PING beside any command", longest, "ms", LONGEST_MS, False, name)


class Printed:
    """Prints the figures."""

    jobs = ENTRIES

    def note(
        self, name: str, value: float, unit: str, target: float, at_least: bool, detail: str
    ) -> None:
        """One line."""
        mark = "ok    " if value <= target else "MISSED"
        print(
            f"{mark} {name:<50} {value:>8.1f} {unit} (wanted <= {target:g})  {detail}", flush=True
        )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows that begin so")
    parser.add_argument("--entries", type=int, default=ENTRIES)
    args = parser.parse_args()
    bench_costs(Printed(), args.only, args.entries)


if __name__ == "__main__":
    main()
