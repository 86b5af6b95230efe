"""QSCAN and JSCAN: walk over queues and jobs in slices (SPEC S4, S5).

The cursor is the order key of the last element looked at: the creation stamp of a job,
the serial of a queue. The order is sorted once per scan and kept for a few seconds, so
that a slice of a million jobs does not cost a million steps. Elements that come later
have greater keys, so that whatever is there throughout is met at least once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from tuque.core.views import job_matches, queue_matches, show
from tuque.server.clients import Client
from tuque.server.monitoring import SNAPSHOT_MS, Snapshot
from tuque.server.state import Server
from tuque.server.views_cmds import flat
from tuque.tubes.tube import Tube
from tuque.wire.args import ScanSpec, scan_options
from tuque.wire.resp import Status

JOBS: Final = "jobs"
QUEUES: Final = "queues"
LOOKS_PER_MATCH: Final = 10  # elements looked at for each one asked for, at most


def cmd_qscan(s: Server, c: Client, args: list[bytes]) -> None:
    """[S4] QSCAN: names of queues."""
    spec = scan_options(args, False)
    cursor, names = scan_slice(s, QUEUES, spec)
    c.reply([b"%d" % cursor, names])


def cmd_jscan(s: Server, c: Client, args: list[bytes]) -> None:
    """[S5] JSCAN: ids of jobs as statuses, or all of each job."""
    spec = scan_options(args, True)
    cursor, ids = scan_slice(s, JOBS, spec)
    items: list[object]
    if spec.reply_all:
        items = [flat(show(s.n, s.n.jobs[id])) for id in ids]
    else:
        items = [Status(id.decode("latin-1")) for id in ids]
    c.reply([b"%d" % cursor, items])


def scan_slice(s: Server, kind: str, spec: ScanSpec) -> tuple[int, list[bytes]]:
    """The next cursor (0: done) and the names or ids that match."""
    snapshot = order_of(s, kind, int(spec.cursor))
    keys, names = snapshot.keys, snapshot.names
    size = len(names)
    at = bisect_right(keys, int(spec.cursor)) if spec.cursor > 0 else 0
    most = size if spec.busy_loop else int(spec.count)
    looks = size if spec.busy_loop else most * LOOKS_PER_MATCH
    found: list[bytes] = []
    last = -1
    while at < size:
        # equal keys stay in one slice: the cursor could not tell them apart
        if keys[at] != last and (looks <= 0 or (len(found) >= most and not spec.busy_loop)):
            return last, found
        if is_match(s, kind, names[at], spec):
            found.append(names[at])
        last = keys[at]
        looks -= 1
        at += 1
    s.scans.pop(kind, None)
    return 0, found


def is_match(s: Server, kind: str, name: bytes, spec: ScanSpec) -> bool:
    """Whether the element is still there and passes the filters."""
    if kind == QUEUES:
        q = s.n.queues.get(name)
        if q is None:
            return False
        type = q.type if isinstance(q, Tube) else b""
        if spec.type is not None and spec.type != type:
            return False  # S4.3
        return queue_matches(s.n, q, spec.min_len, spec.max_len, spec.import_rate)
    job = s.n.jobs.get(name)
    return job is not None and job_matches(job, spec.queue, spec.states)


def order_of(s: Server, kind: str, cursor: int) -> Snapshot:
    """The order for a scan: a new one at its start, else the kept one while it is young."""
    now_ms = int(s.n.now_ms)
    kept = s.scans.get(kind)
    if cursor > 0 and kept is not None and now_ms - kept.at_ms <= SNAPSHOT_MS:
        return kept
    if kind == QUEUES:
        names = list(s.n.queues)
        keys = array("q", [q.serial for q in s.n.queues.values()])
    else:
        names = list(s.n.jobs)
        keys = array("q", [job.ctime_ns for job in s.n.jobs.values()])
    if any_falls(keys):
        order = sorted(range(len(names)), key=keys.__getitem__)
        names = [names[i] for i in order]
        keys = array("q", [keys[i] for i in order])
    snapshot = Snapshot(now_ms, keys, names)
    s.scans[kind] = snapshot
    return snapshot


def any_falls(keys: array[int]) -> bool:
    """Whether the keys are not in order (tables keep the order of insertion, nearly theirs)."""
    listed = keys.tolist()
    return listed != sorted(listed)
