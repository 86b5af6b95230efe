"""Each message from a peer goes to its rule."""

from mypy_extensions import i64

from tuque.core.copies.ack_gc import (
    collect_link_up,
    on_deljob_message,
    on_gotack,
    on_setack,
)
from tuque.core.copies.federation import (
    federate_link_up,
    on_gotjobs,
    on_moved,
    on_needjobs,
    on_pause_message,
    on_yourjobs,
)
from tuque.core.copies.holders import forget_told, on_holders, stop_asking
from tuque.core.copies.replicate import (
    copies_link_up,
    on_enqueue_message,
    on_enqueued,
    on_gotjob,
    on_reach_changed,
    on_release,
    on_repljob,
    on_repljobs,
)
from tuque.core.copies.requeue_messages import (
    on_delivered,
    on_queued,
    on_willqueue,
    on_working_message,
)
from tuque.core.life.cancel_update import changes_link_up, changes_tick
from tuque.core.life.lookup import life_link_up, on_job_ask, on_job_told, on_life
from tuque.core.msgs.bus import (
    AnyMessage,
    Ask,
    Delivered,
    DelJob,
    Enqueue,
    Enqueued,
    GotAck,
    GotJob,
    GotJobs,
    Holders,
    JobAsk,
    JobTold,
    Lack,
    Left,
    LifeAt,
    Moved,
    NeedJobs,
    Pause,
    Queued,
    QueuePurge,
    QueuePurged,
    QueuesTold,
    Release,
    ReplJob,
    ReplJobs,
    SetAck,
    Slots,
    TopicsTold,
    TubeClaim,
    TubeClaimed,
    TubeCopy,
    TubeGot,
    TubePulse,
    TubeStands,
    TubesTold,
    TubeVote,
    TubeVoted,
    TubeYours,
    VotersNext,
    VotersTold,
    WillQueue,
    Working,
    YourJobs,
)
from tuque.core.node.node import Node
from tuque.core.node.peers import clear_link, on_slots, set_reachable
from tuque.core.purge import on_purge_ask, on_purged, purge_link_down
from tuque.core.queue_settings import on_queues, settings_link_up
from tuque.core.repair.drain import drain_link_up, on_answer, on_left, on_passed
from tuque.core.repair.node_loss import begin_settling, end_settling, on_ask, on_lack, on_there
from tuque.core.topics import on_topics, topics_link_up


def on_message(n: Node, slot: i64, m: AnyMessage) -> None:
    """[B3] ON RECV any message but HEARTBEAT, which cluster/ handles; frequent ones first.

    `isinstance` would ask the metaclass of each class, at ten times the cost of `is`.
    """
    if type(m) is ReplJob:
        on_repljob(n, slot, m)
    elif type(m) is ReplJobs:
        on_repljobs(n, slot, m)
    elif type(m) is GotJob:
        on_gotjob(n, slot, m)
        on_copies(n, slot, m.ids)
    elif type(m) is SetAck:
        on_setack(n, slot, m)
    elif type(m) is GotAck:
        on_gotack(n, slot, m)
        if n.is_leaving:
            on_passed(n, slot, m)
    elif type(m) is DelJob:
        on_deljob_message(n, slot, m)
    elif type(m) is Delivered:
        on_delivered(n, slot, m)
    elif type(m) is Queued:
        on_queued(n, slot, m)
    elif type(m) is WillQueue:
        on_willqueue(n, slot, m)
    elif type(m) is Moved:
        on_moved(n, slot, m)
    elif type(m) is YourJobs:
        on_yourjobs(n, slot, m)
    elif type(m) is GotJobs:
        on_gotjobs(n, slot, m)
    elif type(m) is NeedJobs:
        on_needjobs(n, slot, m)
    elif type(m) is Working:
        on_working_message(n, slot, m)
    elif isinstance(m, Enqueue):
        on_enqueue_message(n, slot, m)
    elif isinstance(m, Enqueued):
        on_enqueued(n, slot, m)
    elif isinstance(m, LifeAt | JobAsk | JobTold):
        on_life_message(n, slot, m)
    elif isinstance(m, Holders):
        on_holders(n, slot, m)
    elif isinstance(m, Release):
        on_release(n, slot, m)
    else:
        on_rare(n, slot, m)


def on_rare(n: Node, slot: i64, m: AnyMessage) -> None:
    """Messages about nodes, lost copies, pauses and tubes."""
    if isinstance(m, Slots):
        on_slots(n, slot, m)
    elif isinstance(m, Ask):
        on_ask(n, slot, m)
    elif isinstance(m, Lack):
        there = on_lack(n, slot, m)
        on_answer(n, slot, there, m.ids)
    elif isinstance(m, Left):
        on_left(n, slot, m)
    elif isinstance(m, Pause):
        on_pause_message(n, slot, m)
    elif isinstance(m, TopicsTold):
        on_topics(n, slot, m)
    elif isinstance(m, QueuesTold):
        on_queues(n, slot, m)
    elif isinstance(m, QueuePurge):
        on_purge_ask(n, slot, m)
    elif isinstance(m, QueuePurged):
        on_purged(n, slot, m)
    elif n.policy is not None and isinstance(
        m,
        TubesTold
        | TubeClaim
        | TubeClaimed
        | TubeCopy
        | TubeGot
        | TubeYours
        | VotersTold
        | VotersNext
        | TubePulse
        | TubeStands
        | TubeVote
        | TubeVoted,
    ):
        n.policy.on_message(n, slot, m)


def on_life_message(n: Node, slot: i64, m: LifeAt | JobAsk | JobTold) -> None:
    """[W14-W16] A message about the life of one job."""
    if isinstance(m, LifeAt):
        on_life(n, slot, m)
    elif isinstance(m, JobAsk):
        on_job_ask(n, slot, m)
    else:
        on_job_told(n, slot, m)


def on_copies(n: Node, slot: i64, ids: list[bytes]) -> None:
    """Copies that a repair may wait for have arrived.

    A drain waits for the reply to its own question (K7.2): an earlier message may have made the
    peer drop this very copy as surplus.
    """
    state = n.losses
    if len(state.short) > 0 or len(state.walks) > 0 or state.gone.count() > 0:
        on_there(n, slot, ids)


def on_link_up(n: Node, slot: i64, is_reachable: bool) -> None:
    """[K4] The link to the peer is up: send the messages that waited for it (K4.2)."""
    forget_told(n, slot)
    clear_link(n, slot)
    n.peers[slot].is_linked = True
    n.peers[slot].linked_ms = n.now_ms
    n.linked |= 1 << slot
    set_reachable(n, slot, is_reachable)
    copies_link_up(n, slot)
    drain_link_up(n, slot)
    collect_link_up(n, slot)
    life_link_up(n, slot)
    changes_link_up(n)
    federate_link_up(n, slot)
    topics_link_up(n, slot)
    settings_link_up(n, slot)
    begin_settling(n, slot)
    if n.policy is not None:
        n.policy.on_link_up(n, slot)


def on_link_down(n: Node, slot: i64) -> None:
    """[K4] The link to the peer is down; messages in flight are lost."""
    forget_told(n, slot)
    if n.peers[slot].is_linked:
        end_settling(n, slot)
    clear_link(n, slot)
    stop_asking(n, slot)
    if len(n.life.updates) > 0 or len(n.life.cancels) > 0:
        changes_tick(n)  # W16.4
    if len(n.settings.purging) > 0:
        purge_link_down(n, slot)
    if n.policy is not None:
        n.policy.on_link_down(n, slot)
    on_reach_changed(n)
