"""Metrics and health of the node over HTTP: between the listener's thread and the loop (SPEC O).

The listener asks, the loop takes a snapshot and hands it over, the listener writes the text. The
loop never waits for a reader. Health is answered without the loop, so that it can show that the
loop has stopped.
"""

from __future__ import annotations

import time
from typing import Final

from tuque import __version__
from tuque.core.copies.add import is_full_alone
from tuque.core.queues.procedures import memory_level
from tuque.logtext import facts
from tuque.metrics.listener import TEXT_TYPE, Listener, Page, fault, open_sockets
from tuque.metrics.text import OPEN_TYPE, PLAIN_TYPE, render, wants_open
from tuque.server.journal.thread import Wakeup
from tuque.server.loop.pump import Pump
from tuque.server.metrics.metrics import Snapshot, families, take_snapshot
from tuque.server.net.listen import ListenError
from tuque.server.net.tls_keys import TlsKeys
from tuque.server.replies.errors import IDLE
from tuque.server.state.server import Server, log

ALIVE_S: Final = 15.0  # the loop turns each 5 s at least, for the points of HISTORY


class Desk:
    """The source of the listener's pages."""

    def __init__(self, s: Server) -> None:
        self.s = s
        self.bell = Wakeup()  # rung for the loop
        self.listener: Listener | None = None
        self.is_asked = False  # a snapshot is in work (O1.3)
        self.shot: Snapshot | None = None  # handed over by the loop

    # ---- in the listener's thread

    def page(self, path: str, accept: str) -> Page | None:
        """The page of that path; the metrics come later."""
        path, _, query = path.partition("?")
        if path == "/healthz":
            return self.health()
        if path == "/readyz":
            return self.readiness(query == "for=writes")
        if path != "/metrics":
            return fault(404, "there are /metrics, /healthz and /readyz")
        if not self.is_asked:
            self.is_asked = True
            self.bell.ring()
        return None

    def take(self, path: str, accept: str) -> Page | None:
        """[O1] The metrics as text, once the loop has handed them over (O1.2)."""
        shot = self.shot
        if shot is None:
            return None
        is_open = wants_open(accept)
        return Page(200, OPEN_TYPE if is_open else PLAIN_TYPE, render(families(shot), is_open))

    def done(self) -> None:
        """All who asked have the snapshot: the next one asks for another."""
        self.shot = None
        self.is_asked = False

    def silent_s(self) -> float:
        """How long ago the loop has turned."""
        return (time.monotonic_ns() - int(self.s.watch.turned_ns)) / 1e9

    def health(self) -> Page:
        """[O2] Whether the loop turns (O2.1)."""
        silent_s = self.silent_s()
        if silent_s > ALIVE_S:
            return fault(503, f"the loop has not turned for {silent_s:.0f} s")
        return Page(200, TEXT_TYPE, b"ok\n")

    def readiness(self, for_writes: bool) -> Page:
        """[O2] Whether clients are to come, or why not (O2.2); or also to add jobs (O2.5)."""
        faults = why_not_ready(self.s)
        if for_writes:
            faults += why_no_jobs(self.s)
        silent_s = self.silent_s()
        if silent_s > ALIVE_S:
            faults.append(f"the loop has not turned for {silent_s:.0f} s")
        return fault(503, "\n".join(faults)) if faults else Page(200, TEXT_TYPE, b"ready\n")

    # ---- in the loop's thread

    def on_asked(self) -> None:
        """[O1] Take a snapshot and hand it over (O1.3)."""
        self.bell.quiet()
        if self.listener is None:
            return
        shot = take_snapshot(self.s)
        shot.version = __version__
        self.shot = shot
        self.listener.ring()


def why_not_ready(s: Server) -> list[str]:
    """[O2] Why clients are not to come now; empty: they are (O2.2)."""
    faults: list[str] = []
    if s.stop_requested or s.end_asked or s.n.is_stopping:
        faults.append("it stops")
    if s.is_loading or s.n.is_loading:
        faults.append("it reads its journal")
    if s.conflict:
        faults.append(f"another node, at {s.conflict}, has its id")
    if s.idle in IDLE:
        faults.append("it is no member of its cluster")
    if s.n.is_leaving:
        faults.append("it leaves its cluster")
    return faults


def why_no_jobs(s: Server) -> list[str]:
    """[O2] Why the node takes no more jobs now; empty: it does (O2.5)."""
    faults: list[str] = []
    if s.journal_error:
        faults.append(f"the journal does not work: {s.journal_error}")
    if s.is_disk_short():
        faults.append("its disk is nearly full")
    if memory_level(s.n) == 3:
        faults.append("its memory is used up")
    elif is_full_alone(s.n):
        faults.append("its memory is above 75 % of maxmemory, and there is no other node")
    return faults


def open_metrics(pump: Pump, keys: TlsKeys | None = None) -> Desk | None:
    """[O1] Listen on `metrics-port`, if it is set (O1.1). Raises ListenError."""
    s = pump.s
    cfg = s.cfg
    if not cfg.metrics_port:
        return None
    addresses = cfg.metrics_bind or ["127.0.0.1"]
    try:
        sockets = open_sockets(addresses, cfg.metrics_port)
    except OSError as error:
        where = f"{', '.join(addresses)}, port {cfg.metrics_port}"
        hint = "check metrics-port and metrics-bind"
        raise ListenError(f"can't listen on {where}: {error.strerror}; {hint}") from None
    desk = Desk(s)
    is_tls = cfg.metrics_tls and keys is not None
    desk.listener = Listener(sockets, desk, keys.context if keys and is_tls else None)
    pump.watch_bell(desk.bell.fd, desk.on_asked)
    s.watch.turned_ns = time.monotonic_ns()
    desk.listener.start()
    log.info(
        "metrics on %(scheme)s://%(host)s:%(port)d/metrics",
        facts(
            "metrics_listening",
            scheme="https" if is_tls else "http",
            host=addresses[0],
            port=cfg.metrics_port,
        ),
    )
    return desk


def close_metrics(desk: Desk | None) -> None:
    """Stop listening."""
    if desk is not None and desk.listener is not None:
        desk.listener.close()
        desk.bell.close()
