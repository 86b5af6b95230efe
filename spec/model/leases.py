"""Model of a leader: its lease, and what it answers (SPEC T18.5, T25.2, T27.3, T27.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spec.model.state import (
    ASKS,
    FAR,
    LEADS,
    NEVER,
    NOBODY,
    NONE,
    Copy,
    Entry,
    Message,
    Node,
    View,
    Vote,
    VoterList,
    Yours,
)

ECHO_MOST = 8  # an eighth of the timeout is left for clocks of unlike rates


class Cluster:
    """All nodes, and what is on its way between them."""

    def __init__(self, flaw: str = "") -> None:
        self.flaw = flaw
        self.nodes: list[Node] = []
        self.wire: list[Message] = []
        self.families = 0
        self.serial = 0
        self.turns = 0
        self.unlikes = 0
        self.gave: tuple[int, int] | None = None  # who gave a tube to another list last, to whom
        self.asks_all = True  # `failover-disks ask`
        self.on_won: Callable[[Node, Copy], None] = _unheard
        self.on_answered: Callable[[Node, Copy, tuple[Entry, ...]], None] = _unheard_answer

    def solo_list(self, maker: int, has_journal: bool, disk: int) -> VoterList:
        """[T23] The list that a node makes at its start."""
        self.families += 1
        voters = VoterList(self.families, 1, {maker: 1}, {maker: disk}, maker, solo=True)
        voters.on_disk = has_journal
        return voters

    def unlike(self) -> int:
        """A number that nobody else has: random bytes of a disk, or the time of a command."""
        self.unlikes += 1
        return self.unlikes

    def entry(self, epoch: int) -> Entry:
        """A change that never was before."""
        self.serial += 1
        return epoch, self.serial


def _unheard(x: Node, copy: Copy) -> None:
    """Nobody judges."""


def _unheard_answer(x: Node, copy: Copy, new: tuple[Entry, ...]) -> None:
    """Nobody judges."""


def write(x: Node) -> None:
    """A record; the disk epoch grows, but for a node that asks what it was (T29.3)."""
    x.is_dirty = True
    if x.disk.right > 0 and not x.asking:
        x.disk.mark += 1  # T29.1


def sync(w: Cluster, x: Node) -> None:
    """What was written is on the disk; what waited for that is sent."""
    if x.is_dirty:
        x.is_dirty = False
        x.safe = x.disk.twin()
    due, x.due = x.due, []
    for m in due:
        if m.dst == x.id:
            on_own_vote(w, x, m)
        else:
            w.wire.append(m)
    for copy in list(x.disk.tubes.values()):
        answer(w, x, copy)


def say_surely(w: Cluster, x: Node, m: Message) -> None:
    """[T26] Send it once what was written is on the disk (T26.2, T27.3)."""
    x.due.append(m)
    if w.flaw == "vote_not_durable" and not isinstance(m, Yours):
        x.due.pop()
        if m.dst == x.id:
            on_own_vote(w, x, m)
        else:
            w.wire.append(m)


def vouches(w: Cluster, x: Node, voters: VoterList) -> bool:
    """[T23] Whether the votes and echoes of this node count under the list (T23.4, T29.3)."""
    if voters is not x.disk.list:
        return x.id in voters.voters  # its own solo list
    return not x.asking and x.disk.right > 0 and voters.voters.get(x.id, 0) == x.disk.right


def lease_of(w: Cluster, x: Node, copy: Copy, view: View) -> int:
    """[T25] Until when this node may lead the tube (T25.2)."""
    voters = counted_by(w, x, copy, view)
    if view.role != LEADS or voters is None or copy.vote() != (view.epoch, x.id):
        return NEVER
    timeout = x.timeout
    times = []
    for voter in voters.voters:
        if voter == x.id:
            continue
        if view.standing >> voter & 1 or w.flaw == "echo_blind":
            times.append(max(x.echoed.get(voter, NEVER), view.echoed.get(voter, NEVER)))
            if w.flaw != "own_timeout":
                timeout = min(timeout, x.timeouts.get(voter, timeout))
    needed = voters.majority()
    if w.flaw == "half_is_enough":
        needed = max(1, len(voters.voters) // 2)
    if vouches(w, x, voters):
        needed -= 1
    if needed <= 0:
        return FAR  # T27.10: the only voter
    if len(times) < needed:
        return NEVER
    times.sort(reverse=True)
    lasts = timeout * 3 // 2 if w.flaw == "lease_too_long" else timeout - timeout // ECHO_MOST
    return times[needed - 1] + lasts


def counted_by(w: Cluster, x: Node, copy: Copy, view: View) -> VoterList | None:
    """The list by which a leader counts."""
    if w.flaw == "old_list_leads" and view.won_by is not None:
        return view.won_by
    return x.list_of(copy)


def is_running(w: Cluster, x: Node, copy: Copy) -> bool:
    """[T25] Whether the tube takes commands here now."""
    view = x.view(copy.key)
    return view.role == LEADS and lease_of(w, x, copy, view) > x.seen


def step_down(x: Node, view: View) -> None:
    """[T25] This node leads the tube no more, nor asks for votes (T25.6)."""
    view.role = NONE
    view.standing = 0
    view.ending_to = NOBODY
    view.wait_at = x.clock
    view.few_at = NEVER


def win(w: Cluster, x: Node, copy: Copy, view: View) -> None:
    """[T27] Lead the tube under the new epoch (T27.3)."""
    view.role = LEADS
    view.won_by = x.list_of(copy)
    view.silent_at = view.few_at = NEVER
    view.settling = view.settled = None
    view.ending_to = NOBODY
    view.got = {}
    copy.led, copy.leader, copy.copy = view.epoch, x.id, view.epoch
    copy.given = 0
    if not copy.log:
        copy.log = (w.entry(view.epoch),)  # T27.8: what CREATE said is the first change
    view.begun, view.sure = len(copy.log), 0
    write(x)
    w.on_won(x, copy)
    if w.flaw == "create_at_vote":
        w.on_answered(x, copy, copy.log[:1])


def on_own_vote(w: Cluster, x: Node, m: Message) -> None:
    """[T27] The vote of the only voter is on its disk: it leads (T27.10)."""
    if not isinstance(m, Vote):
        return
    copy = x.disk.tubes.get(m.key)
    if copy is None or x.list_of(copy) is not m.list or not vouches(w, x, m.list):
        return
    view = x.view(m.key)
    if view.role == ASKS and view.epoch == m.epoch and m.list.majority() == 1:
        win(w, x, copy, view)


def got_of(w: Cluster, view: View, node: int, disk: int) -> int:
    """How many changes that disk of that node has."""
    return view.got.get((node, 0 if w.flaw == "lost_disk_confirms" else disk), 0)


def counts(w: Cluster, x: Node, copy: Copy, view: View, disks: Mapping[int, int]) -> int:
    """[T27] How many changes a majority of these disks has under this epoch (T27.7)."""
    have = []
    for node, disk in disks.items():
        if node != x.id:
            have.append(got_of(w, view, node, disk))
            continue
        safe = x.safe.tubes.get(copy.key)
        mine = len(safe.log) if safe is not None and safe.copy == copy.copy else 0
        mine = mine if x.has_journal else len(copy.log)
        is_own = len(disks) == 1  # nobody else could have given the right
        have.append(mine if is_own or (disk == x.disk.id and not x.asking) else 0)
    have.sort(reverse=True)
    return have[len(have) // 2]


def next_disks(x: Node) -> dict[int, int]:
    """The voters of the list that a list of one grows to, and their disks (T28.9)."""
    return {x.id: x.disk.id} | {v: x.heard[v].disk for v in x.growing}


def answer(w: Cluster, x: Node, copy: Copy) -> None:
    """[T27] Answer what a majority of the voters has (T27.7); settle the tube (T28.3)."""
    view = x.view(copy.key)
    if view.role != LEADS or copy.copy != view.epoch:
        return
    voters = counted_by(w, x, copy, view)
    if voters is None:
        return
    sure = counts(w, x, copy, view, voters.disks)
    if x.growing and voters is x.disk.list:
        sure = min(sure, counts(w, x, copy, view, next_disks(x)))
    if sure > view.sure:
        new = copy.log[view.sure : sure]
        view.sure = sure
        w.on_answered(x, copy, new)
    if not is_running(w, x, copy):
        return
    if view.settling is not voters:
        view.settling, view.settling_len = voters, len(copy.log)
    if view.sure >= view.settling_len:
        view.settled, view.settled_epoch, view.settled_by = voters, view.epoch, x.id


def lose(view: View) -> None:
    """[T27] Step down; the next pulse says so (T27.4)."""
    view.role = NONE
    view.standing = 0
    view.silent_at = NEVER


def put(w: Cluster, x: Node, copy: Copy) -> None:
    """[T18] A change at the leader."""
    copy.log = (*copy.log, w.entry(copy.copy))
    write(x)
