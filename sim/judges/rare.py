"""Rare states that a run must meet: zero findings say little about what was never tried.

Detected at the ends of turns, as messages arrive and as processes die. RARE has each name once;
the score-card counts those that were met and lists the others.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from sim.tube_judges.disk import tubes_on
from tuque.core.model.job import ACKED, BODYLESS, EXTERNAL, LEASED, QUEUED, Job
from tuque.core.model.tombstones import OVER
from tuque.core.msgs.bus import (
    AnyMessage,
    Ask,
    Delivered,
    DelJob,
    GotAck,
    GotJob,
    GotJobs,
    Lack,
    Left,
    Moved,
    NeedJobs,
    Pause,
    Queued,
    Release,
    ReplJob,
    ReplJobs,
    SetAck,
    TubeClaimed,
    TubeCopy,
    TubeGot,
    TubeYours,
    WillQueue,
    YourJobs,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import count_of
from tuque.core.node.queue import PAUSE_IN, PAUSE_OUT
from tuque.core.queues.procedures import memory_level
from tuque.tubes.model.tube import (
    ENDING,
    RUNNING,
    STARTUP,
    WAITING,
    Tube,
)
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.types.utube import UTube

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.machines.shell import Shell

JOBS_LOOKED_AT: Final = 30  # the first ones of a node, at each check

# detected in place, with `world.sometimes` and one of these names
ON_THE_SPOT: Final = (
    "a bucket is dry when the leader changes",
    "a callback is made by a new leader",
    "a duplicate is answered by a new leader",
    "a home stood still",
    "a link ends with a wrong frame",
    "a link has no room",
    "a link is closed for what waits",
    "a link is overtaken by a later one",
    "a link is replaced by a newer one",
    "a node is drained",
    "a schedule makes a job at a new leader",
    "a turn while the journal is loaded",
    "crash between two effects of a turn",
    "a new leader finds a limit that is full",
    "frames are held back",
    "repair done in a rolling restart",
    "restart with jobs from the disk",
)


def queued_here(n: Node, id: bytes) -> bool:
    """Whether the job is queued on this node."""
    job = n.jobs.get(id)
    return job is not None and job.state == QUEUED


def acked_here(n: Node, id: bytes) -> bool:
    """Whether the node collects the acks of the job."""
    job = n.jobs.get(id)
    return job is not None and job.state == ACKED


def is_over(n: Node, id: bytes) -> bool:
    """Whether the node knows that the job has ended everywhere."""
    bucket = n.tombs.ids.get(id)
    return bucket is not None and bucket.kind == OVER


def is_paused(n: Node, name: bytes, bits: int) -> bool:
    """Whether the queue is paused with these bits."""
    q = n.queues.get(name)
    return q is not None and q.pause & bits != 0


def tube_of(n: Node, name: bytes) -> Tube | None:
    """The tube with that name, as the node knows it."""
    t = tubes_on(n)
    return t.by_name.get(name) if t is not None else None


# ---- messages


def on_repljob(n: Node, m: ReplJob) -> str:
    """A copy arrives."""
    return on_copy(n, m.id)


def on_repljobs(n: Node, m: ReplJobs) -> str:
    """Copies of several jobs arrive."""
    return max(on_copy(n, id) for id in (m.first.id, *(id for id, _, _ in m.others)))


def on_copy(n: Node, id: bytes) -> str:
    """A copy of that job arrives."""
    if is_over(n, id):
        return "a copy of a job comes that is over"
    return "a copy comes again" if id in n.jobs else ""


def on_gotjob(n: Node, m: GotJob) -> str:
    """A copy is confirmed."""
    return "a copy is confirmed after its producer gave up" if set(m.ids) & set(n.failed) else ""


def on_queued(n: Node, m: Queued) -> str:
    """Another node queued a job."""
    if acked_here(n, m.id):
        return "another node queues a job that is acked here"
    return "another node queues a job that is queued here" if queued_here(n, m.id) else ""


def on_will(n: Node, m: WillQueue) -> str:
    """Another node will queue jobs."""
    if any(acked_here(n, id) or is_over(n, id) for id in m.ids):
        return "another node is about to queue a job that is acked"
    is_queued = any(queued_here(n, id) for id in m.ids)
    return "another node is about to queue a job that is queued here" if is_queued else ""


def on_delivered(n: Node, m: Delivered) -> str:
    """Another node delivered a job."""
    return "another node hands out a job that is queued here" if queued_here(n, m.id) else ""


def on_setack(n: Node, m: SetAck) -> str:
    """An ack arrives."""
    if m.id not in n.jobs and m.id not in n.tombs.ids:
        return "an ack comes before its job, or after it is forgotten"
    return "an ack comes of a job that is queued here" if queued_here(n, m.id) else ""


def on_gotack(n: Node, m: GotAck) -> str:
    """A holder replies to an ack."""
    return "a holder does not know the job that is acked" if not m.known else ""


def on_deljob(n: Node, m: DelJob) -> str:
    """Another node ended a collection."""
    job = n.jobs.get(m.id)
    return "the end of a job comes before its ack" if job is not None and job.state != ACKED else ""


def on_needjobs(n: Node, m: NeedJobs) -> str:
    """Another node has waiting clients."""
    return (
        "jobs are wished for of a queue that is paused" if is_paused(n, m.queue, PAUSE_OUT) else ""
    )


def on_yourjobs(n: Node, m: YourJobs) -> str:
    """Jobs arrive from another node."""
    if is_paused(n, m.queue, PAUSE_IN):
        return "jobs are given to a queue that is paused"
    if any(job.retry_s == 0 for job in m.jobs):
        return "an at-most-once job moves"
    return "a job moves to a node that has it" if any(j.id in n.jobs for j in m.jobs) else ""


def on_gotjobs(_: Node, m: GotJobs) -> str:
    """The receiver of jobs replies."""
    return "jobs that were given are refused" if m.refused else ""


def on_moved(n: Node, m: Moved) -> str:
    """Another node serves the job now."""
    if acked_here(n, m.id):
        return "a job that is acked here has moved"
    return "a job that is queued here has moved" if queued_here(n, m.id) else ""


def on_left(_: Node, __: Left) -> str:
    """A node dropped its copy."""
    return "a copy is given up"


def on_pause(n: Node, m: Pause) -> str:
    """A PAUSE arrives."""
    known = n.pauses.get(m.queue)
    is_late = known is not None and known.stamp_ns > m.stamp_ns
    return "a PAUSE comes that is older than the one here" if is_late else ""


def on_ask(n: Node, m: Ask) -> str:
    """A node asks which copies are here."""
    if any(is_over(n, id) or acked_here(n, id) for id in m.ids):
        return "a copy is asked for of a job that is acked"
    return "a node asks who has copies, for it knows of too few" if m.is_short else ""


def on_lack(_: Node, __: Lack) -> str:
    """A node lacks copies that it was asked for."""
    return "a copy that was asked for is not there"


def on_release(n: Node, m: Release) -> str:
    """Surplus copies may be dropped."""
    return "a copy too many may go, and is queued" if any(queued_here(n, i) for i in m.ids) else ""


def on_tubecopy(n: Node, m: TubeCopy) -> str:
    """A leader sends changes."""
    tube = tube_of(n, m.name)
    if tube is None:  # only after a drop: a follower has asked for what it is sent (T18.3)
        return ""
    if (tube.maker, tube.made_ns) != (m.maker, m.made_ns):
        return "a copy comes of another tube of that name"
    return "a copy of a tube comes under an old epoch" if m.epoch < tube.epoch else ""


def on_tubegot(n: Node, m: TubeGot) -> str:
    """A follower confirms changes."""
    tube = tube_of(n, m.name)
    return "a home hears of a newer one" if tube is not None and m.known > tube.epoch else ""


def on_tubeyours(n: Node, m: TubeYours) -> str:
    """This node is made the leader."""
    tube = tube_of(n, m.name)
    return (
        "a tube is given to a node whose copy lacks something" if tube and tube.seq < m.seq else ""
    )


def on_tubeclaimed(n: Node, m: TubeClaimed) -> str:
    """A node replies whether this one may lead."""
    t = tubes_on(n)
    claim = t.claims.get(m.number) if t is not None else None
    if m.is_complete or (claim is not None and claim.moving is not None):
        return ""  # a planned move does not ask for replicas (T20.1)
    return "a node with a part of a tube is asked for its home"


ON_MESSAGE: Final[dict[type, Callable[..., str]]] = {
    ReplJob: on_repljob, ReplJobs: on_repljobs, GotJob: on_gotjob,
    Queued: on_queued, WillQueue: on_will,
    Delivered: on_delivered, SetAck: on_setack, GotAck: on_gotack, DelJob: on_deljob,
    NeedJobs: on_needjobs, YourJobs: on_yourjobs, GotJobs: on_gotjobs, Moved: on_moved,
    Left: on_left, Pause: on_pause, Ask: on_ask, Lack: on_lack, Release: on_release,
    TubeCopy: on_tubecopy, TubeGot: on_tubegot, TubeYours: on_tubeyours,
    TubeClaimed: on_tubeclaimed,
}  # fmt: skip


def look_at_message(shell: Shell, message: AnyMessage) -> None:
    """A message is about to be handled."""
    look = ON_MESSAGE.get(type(message))
    state = look(shell.n, message) if look is not None else ""
    if state:
        shell.world.sometimes(state)


# ---- nodes at the ends of turns


def lacks_link(shell: Shell) -> bool:
    """Whether a node that is up has no link to this one."""
    linked = {peer.node_id for peer in shell.n.peers[1:] if peer.is_linked}
    others = shell.machine.others()
    return any(m.shell is not None and m.node_id not in linked for m in others)


def is_failing(shell: Shell) -> bool:
    """Whether the disk refuses the journal."""
    return bool(shell.n.records) and bool(shell.s.journal_error)


OF_NODES: Final[dict[str, Callable[[Shell], bool]]] = {
    "memory level 1": lambda s: memory_level(s.n) == 1,
    "memory level 2": lambda s: memory_level(s.n) == 2,
    "memory level 3": lambda s: memory_level(s.n) == 3,
    "jobs are evicted": lambda s: s.n.ledger.evicted > 0,
    "acks are evicted": lambda s: s.n.acks_evicted > 0,
    "tombstones": lambda s: len(s.n.tombs.ids) > 0,
    "producers wait": lambda s: len(s.n.adding) > 0,
    "producers gave up, copies are out": lambda s: len(s.n.failed) > 0,
    "consumers wait": lambda s: len(s.n.waiters) > 0,
    "replies are held back": lambda s: len(s.pump.gate.held) > 0,
    "a journal that fails": is_failing,
    "a journal is rewritten": lambda s: s.is_rewriting(),
    "acks of unknown jobs": lambda s: len(s.n.strays) > 0,
    "acks are told again": lambda s: len(s.n.retelling) > 0,
    "another node's clients wait": lambda s: any(d.wishes for d in s.n.demands.values()),
    "an at-most-once job between two nodes": lambda s: len(s.n.custody) > 0,
    "a copy was denied": lambda s: s.n.denied.count() > 0,
    "jobs with too few copies": lambda s: len(s.n.losses.short) > 0,
    "a node leaves with jobs": lambda s: s.n.is_leaving and len(s.n.jobs) > 0,
    "a node leaves while another one does": lambda s: (
        s.n.is_leaving and any(p.is_leaving for p in s.n.peers[1:])
    ),
    "clients wait on a paused queue with jobs": lambda s: any(
        q.length > 0 and q.pause & PAUSE_OUT and q.waiters for q in s.n.queues.values()
    ),
    "nodes that are up have no link": lacks_link,
    "a forgotten node": lambda s: s.n.forgotten != 0,
    "a batch whose lease is over": lambda s: any(
        batch.is_expired for g in s.n.leases.groups.values() for batch in g.batches.values()
    ),
    "rows are staged": lambda s: s.n.staging.count > 0,
    "a publication waits for copies": lambda s: len(s.n.staging.publishing) > 0,
    "keys are kept": lambda s: len(s.n.keys.kept) > 0,
}
OF_JOBS: Final[dict[str, Callable[[Node, Job], bool]]] = {
    "more holders than copies were asked for": lambda n, job: count_of(job.holders) > int(job.repl),
    "an ack waits for a holder without link": lambda n, job: (
        job.state == ACKED and job.holders & ~job.confirmed & ~n.linked & ~1 != 0
    ),
    "only the ack of a job is known": lambda n, job: job.flags & BODYLESS != 0,
    "copies are made elsewhere": lambda n, job: job.flags & EXTERNAL != 0,
    "a job is leased": lambda n, job: job.flags & LEASED != 0,
}
OF_TUBES: Final[dict[str, Callable[[Node, Tubes, Tube], bool]]] = {
    "a tube starts": lambda n, t, tube: tube.state == STARTUP,
    "a tube ends here": lambda n, t, tube: tube.state == ENDING,
    "a tube waits for its next home": lambda n, t, tube: tube.state == WAITING,
    "a home that too few nodes hear": lambda n, t, tube: (
        tube.is_mine and tube.state == RUNNING and n.now_ms > t.lease_ms
    ),
    "a home is to move": lambda n, t, tube: tube.move is not None,
    "tasks move step by step": lambda n, t, tube: tube.shift is not None,
    "a home by force waits": lambda n, t, tube: tube.is_mine and tube.run_ms != 0,
    "two tubes of one name": lambda n, t, tube: tube.conflict != b"" or tube.apart != 0,
    "a part of a copy": lambda n, t, tube: not tube.is_mine and not tube.is_complete,
    "buried tasks": lambda n, t, tube: tube.buried > 0,
    "delayed tasks": lambda n, t, tube: tube.delayed > 0,
    "puts wait for room": lambda n, t, tube: len(tube.putters) > 0,
    "tasks wait behind a busy sub-queue": lambda n, t, tube: (
        isinstance(tube.driver, UTube)
        and any(lane.taken > 0 and lane.count > 0 for lane in tube.driver.lanes.values())
    ),
    "plain jobs in a tube": lambda n, t, tube: tube.plain > 0,
}


def look_at_node(shell: Shell) -> None:
    """A turn ended."""
    n, world = shell.n, shell.world
    for state, is_so in OF_NODES.items():
        if is_so(shell):
            world.sometimes(state)
    some = list(islice(n.jobs.values(), JOBS_LOOKED_AT))
    if some:
        for state, is_job_so in OF_JOBS.items():
            if any(is_job_so(n, job) for job in some):
                world.sometimes(state)
    t = tubes_on(n)
    if t is None or n.is_loading or not t.by_name:
        return
    for state, is_tube_so in OF_TUBES.items():
        if any(is_tube_so(n, t, tube) for tube in t.by_name.values()):
            world.sometimes(state)


# ---- deaths


def is_last(machine: Machine) -> bool:
    """Whether no other node is up."""
    return all(other.shell is None for other in machine.others())


OF_DEATHS: Final[dict[str, Callable[[Machine, Shell], bool]]] = {
    "death while a producer waits": lambda m, s: len(s.n.adding) > 0,
    "death of a node with leases": lambda m, s: len(s.n.leases.groups) > 0,
    "death with staged rows": lambda m, s: s.n.staging.count > 0,
    "death while the journal is loaded": lambda m, s: s.n.is_loading,
    "death while the journal is rewritten": lambda m, s: s.is_rewriting(),
    "death before the journal was synced": lambda m, s: s.has_unsynced(),
    "death of a node that leaves": lambda m, s: bool(s.n.is_leaving),
    "death while copies are made again": lambda m, s: len(s.n.losses.short) > 0,
    "death while an at-most-once job is in transit": lambda m, s: len(s.n.custody) > 0,
    "death while an ack is collected": lambda m, s: len(s.n.acked) > 0,
    "death of a home that is to move": lambda m, s: any(
        tube.move is not None or tube.shift is not None or tube.is_owed for tube in tubes_of(s)
    ),
    "death of a home": lambda m, s: any(tube.is_mine for tube in tubes_of(s)),
    "death of the last node that is up": lambda m, _: is_last(m),
}


def tubes_of(shell: Shell) -> list[Tube]:
    """The tubes that the process knows."""
    t = tubes_on(shell.n)
    return list(t.by_name.values()) if t is not None else []


def look_at_death(machine: Machine, shell: Shell) -> None:
    """A process ended."""
    for state, is_so in OF_DEATHS.items():
        if is_so(machine, shell):
            machine.world.sometimes(state)


OF_MESSAGES: Final = (
    "a copy of a job comes that is over",
    "a copy comes again",
    "a copy is confirmed after its producer gave up",
    "another node queues a job that is acked here",
    "another node queues a job that is queued here",
    "another node is about to queue a job that is acked",
    "another node is about to queue a job that is queued here",
    "another node hands out a job that is queued here",
    "an ack comes before its job, or after it is forgotten",
    "an ack comes of a job that is queued here",
    "a holder does not know the job that is acked",
    "the end of a job comes before its ack",
    "jobs are wished for of a queue that is paused",
    "jobs are given to a queue that is paused",
    "an at-most-once job moves",
    "a job moves to a node that has it",
    "jobs that were given are refused",
    "a job that is acked here has moved",
    "a job that is queued here has moved",
    "a copy is given up",
    "a PAUSE comes that is older than the one here",
    "a copy is asked for of a job that is acked",
    "a node asks who has copies, for it knows of too few",
    "a copy that was asked for is not there",
    "a copy too many may go, and is queued",
    "a copy comes of another tube of that name",
    "a copy of a tube comes under an old epoch",
    "a home hears of a newer one",
    "a tube is given to a node whose copy lacks something",
    "a node with a part of a tube is asked for its home",
)
RARE: Final = sorted(
    [*ON_THE_SPOT, *OF_MESSAGES, *OF_NODES, *OF_JOBS, *OF_TUBES, *OF_DEATHS]
)  # fmt: skip
