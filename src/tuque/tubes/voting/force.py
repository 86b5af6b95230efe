"""TUBE HOME with FORCE for a tube led by votes: the last resort (SPEC T27.12).

The copy of one node counts as whole by command. Votes then choose that node as any other one: a
majority still decides, and promises still hold.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.node.node import Node
from tuque.tubes.model import errors as why
from tuque.tubes.model.ballots import FORCED
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.errors import TubeError, shown
from tuque.tubes.model.registry import HomeDone, Tubes
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.send import record_home
from tuque.tubes.replication.stands import record_stand, seat_of, stand_of
from tuque.tubes.voting.changes import voting_here
from tuque.tubes.voting.voters import may_vouch

ALONE: Final = 4  # timeouts in which votes could have chosen a leader
SEQ_GAP: Final = 1 << 32  # no other copy has so high a number of a change


def take_by_vote(n: Node, t: Tubes, tube: Tube, client: i64, serial: i64) -> None:
    """[T27] ON TUBE HOME tube node FORCE, of a tube led by votes (T27.12).

    The reply comes in `t.home_done`. Raises TubeError.
    """
    voters = t.ballots.in_force()
    if t.is_read_only:
        raise TubeError(why.NODE_READ_ONLY)
    if voters is None:
        raise TubeError(why.NO_LIST)
    if tube.is_others:
        raise TubeError(why.OTHER_VOTERS, (tube.name,))
    if not may_vouch(n, t):
        raise TubeError(why.NO_VOTE_HERE)
    here = len(voting_here(n, t, voters))
    if here < voters.majority():
        raise TubeError(why.NO_MAJORITY_HERE, (here, len(voters.rights)))
    seat = seat_of(tube)
    span_ms: i64 = ALONE * n.limits.node_timeout_ms
    if seat.alone_ms == 0 or n.now_ms < seat.alone_ms + span_ms:
        raise TubeError(why.BY_VOTE, (tube.name, span_ms // 1000))
    if tube.shift is not None or seat.asked_epoch > 0:
        raise TubeError(why.MOVING, (tube.name,))
    done = HomeDone(client, serial, tube)
    done.until_ms = n.now_ms + 2 * n.limits.node_timeout_ms
    missing: i64 = max(0, tube.told_seq - tube.seq)
    done.values = [
        (b"home", n.node_id),
        (b"epoch", b""),  # with the reply
        (b"copy", b"complete" if tube.is_complete else b"incomplete"),
        (b"changes-missing", b"%d" % missing),
        (b"last-heard-ms", b"%d" % (n.now_ms - tube.heard_ms if tube.heard_ms > 0 else -1)),
        (b"next-id", b""),
        (b"stopped", why_stopped(tube.type, tube.driver).encode()),
    ]
    t.notes.append(
        f"tube {shown(tube.name)}: what this node has of it counts as all by command; "
        f"{missing} changes are known to be missing, and what only other nodes have is dropped"
    )
    count_as_whole(n, t, tube)
    t.creating.append(done)


def count_as_whole(n: Node, t: Tubes, tube: Tube) -> None:
    """The replica is complete by command, and newer than all others; this node stands up."""
    seat = seat_of(tube)
    epoch, _ = stand_of(tube)
    tube.copy_epoch = max(epoch, seat.floor, tube.copy_epoch, tube.whole_epoch)
    tube.seq = max(tube.seq, tube.told_seq, tube.whole_seq) + SEQ_GAP
    tube.told_seq = tube.seq
    tube.exact_seq = -1
    tube.is_complete = True
    tube.is_asking = False
    tube.unseen = {}
    seat.reason = FORCED
    seat.silent_ms = n.now_ms
    seat.wait_ms = n.now_ms
    seat.waits = 0
    t.ballots.look_ms = 0
    if n.records is not None:
        record_home(n.records, tube)
        record_stand(n.records, tube)


def tell_forced(n: Node, tube: Tube, done: HomeDone) -> None:
    """The tube is led here now: what the reply says of that."""
    told = dict(done.values)
    told[b"epoch"] = b"%d" % tube.epoch
    told[b"next-id"] = b"%d" % tube.next_number
    done.values = list(told.items())
