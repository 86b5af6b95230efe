"""Leaders and replicas from and into the journal (SPEC T22).

A tube led by this node runs at once if there is no other node; else it waits for the catalogs of
the others (T19.4), with its tasks as copies until then.
"""

from typing import final

from mypy_extensions import i64

from tuque.core.model.task import Task
from tuque.core.node.node import Node
from tuque.core.records.jobs import TUBE_HOLDER, Records
from tuque.core.records.leadership import (
    BY_VOTE,
    COMPLETE,
    FOREIGN,
    GONE,
    MAJORITY,
    MINE,
    OTHERS,
    OWED,
    HomeRecord,
    tell_tube_holder,
)
from tuque.tubes.model.registry import Dropped, Tubes
from tuque.tubes.model.replica_state import INIT, RUNNING, Held
from tuque.tubes.model.tube import Tube
from tuque.tubes.replication.catalog import bury_tube, record_gone
from tuque.tubes.replication.leadership import is_alone
from tuque.tubes.replication.receive import hold, keep_copy
from tuque.tubes.replication.send import record_home
from tuque.tubes.replication.stands import VoteLog, tell_votes


@final
class HomeLog:
    """The leaders in the journal read so far."""

    def __init__(self) -> None:
        self.homes: dict[bytes, HomeRecord] = {}
        self.held: dict[bytes, dict[int, Held]] = {}
        self.gone: dict[bytes, HomeRecord] = {}
        self.votes = VoteLog()

    def apply(self, kind: i64, r: HomeRecord) -> None:
        """Apply one record."""
        if kind == TUBE_HOLDER:
            held = self.held.get(r.name)
            if held is None:
                held = {}
                self.held[r.name] = held
            held[r.number] = Held(r.uuid, r.user)
        elif r.flags & GONE:
            self.gone[r.name] = copied(r)
        else:
            before = self.homes.get(r.name)
            if before is not None and before.copy_epoch != r.copy_epoch:
                self.held.pop(r.name, None)  # their numbers were another leader's
            self.homes[r.name] = copied(r)

    def on_drop(self, name: bytes) -> None:
        """The tube is gone from here: dropped, or set aside for another one (T17.5)."""
        self.homes.pop(name, None)
        self.held.pop(name, None)
        self.votes.stands.pop(name, None)

    def restore(self, n: Node, t: Tubes, tube: Tube) -> None:
        """[T22] Set the leader of a tube about to be entered."""
        r = self.homes.get(tube.name)
        if r is None:  # from before the tube had a leader
            tube.home = n.node_id
            tube.maker = n.node_id
        else:
            tube.home = r.home
            tube.maker = r.maker
            tube.made_ns = r.made_ns
            tube.epoch = r.epoch
            tube.seq = r.seq
            tube.seq_reserved = r.seq
            tube.loaded_seq = r.seq
            tube.copy_epoch = r.copy_epoch
            tube.told_seq = r.told_seq
            tube.sync = r.sync
            tube.fails_over = r.flags & BY_VOTE != 0
            tube.by_majority = r.flags & MAJORITY != 0
            tube.is_others = r.flags & OTHERS != 0
            tube.is_mine = r.flags & MINE != 0 and r.home == n.node_id
            tube.is_complete = r.flags & COMPLETE != 0
            tube.is_owed = r.flags & OWED != 0
            if tube.is_mine:
                tube.exact_seq = r.told_seq
        is_foreign = r is not None and r.flags & FOREIGN != 0
        tube.is_local = tube.is_mine and not is_foreign  # T20.5
        tube.state = RUNNING if tube.is_local and is_alone(n) else INIT
        tube.is_won = False  # T27.5
        self.votes.restore_stand(tube)
        for number, held in self.held.get(tube.name, {}).items():
            hold(t, tube, number, held.uuid, held.user)

    def restore_gone(self, t: Tubes) -> None:
        """Remember dropped tubes."""
        for name, r in self.gone.items():
            bury_tube(t, name, Dropped(r.maker, r.made_ns, r.epoch))


def copied(r: HomeRecord) -> HomeRecord:
    """A copy of the record, which outlives the decoder's."""
    kept = HomeRecord()
    kept.name = r.name
    kept.epoch = r.epoch
    kept.seq = r.seq
    kept.copy_epoch = r.copy_epoch
    kept.told_seq = r.told_seq
    kept.made_ns = r.made_ns
    kept.sync = r.sync
    kept.flags = r.flags
    kept.maker = r.maker
    kept.home = r.home
    return kept


def restore_copy(t: Tubes, tube: Tube, task: Task) -> bool:
    """[T22] Restore a task of a tube that does not run here; False: it is here already."""
    if task.number in tube.copies or task.id in t.copies_by_id:
        return False
    if tube.next_number <= task.number:
        tube.next_number = task.number + 1
    if tube.is_local and task.owner != 0:
        tube.owners[task.owner] = None
    keep_copy(t, tube, task)
    return True


def tell_homes(n: Node, t: Tubes, records: Records) -> None:
    """[T22] Record leaders at the start of a snapshot, after their tubes; and dropped tubes."""
    for tube in t.by_name.values():
        record_home(records, tube)
        for number, held in tube.held.items():
            tell_tube_holder(records, tube.name, number, held.uuid, held.user)
    for name, gone in t.dropped.items():
        record_gone(records, name, gone)
    tell_votes(t, records)


def copies_of(t: Tubes) -> list[Task]:
    """All copies on this node."""
    return list(t.copies_by_id.values())
