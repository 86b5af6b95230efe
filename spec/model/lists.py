"""Model of lists of voters: they meet, grow and change; old disks (SPEC T20, T23, T28, T29)."""

from __future__ import annotations

from collections.abc import Iterable

from spec.model.leases import (
    Cluster,
    counts,
    got_of,
    is_running,
    lose,
    next_disks,
    say_surely,
    step_down,
    sync,
    vouches,
    win,
    write,
)
from spec.model.state import (
    ASKS,
    FAR,
    LEADS,
    NEVER,
    NO_MARK,
    NOBODY,
    NONE,
    Copy,
    Disk,
    Key,
    Mark,
    Node,
    Pulse,
    View,
    VoterList,
    Yours,
)


def stands_over(new: VoterList, old: VoterList) -> bool:
    """[T23] Of two families the grown list; of two solo lists that on a disk; the lower id."""
    if not old.solo or not new.solo:
        return old.solo and not new.solo
    return (not new.on_disk, new.maker) < (not old.on_disk, old.maker)


def hear_list(w: Cluster, x: Node, src: int, new: VoterList) -> None:
    """[T23] ON RECV VOTERS: go by the list that stands (T23.4)."""
    old = x.disk.list
    if new is old:
        return
    if new.family == old.family:
        if (new.forced, new.number) > (old.forced, old.number):
            if new.forced > old.forced:
                x.asked = None  # its voters are dead
            take_list(w, x, new, right_in(w, x, new))
        return
    if new.maker == x.id and new.solo:
        return  # of a life before
    if new.solo and old.solo and new.maker == old.maker == src:
        take_list(w, x, new, right_in(w, x, new))  # its maker lost the older one with its disk
    elif stands_over(new, old):
        if old.solo and old.maker == x.id and x.disk.right > 0:
            x.disk.own = old
        take_list(w, x, new, right_in(w, x, new))


def right_in(w: Cluster, x: Node, new: VoterList) -> int:
    """[T28] The right that the list gives to the disk of this node (T28.5)."""
    right = new.voters.get(x.id, 0)
    if w.flaw == "right_by_number" and new.family == x.disk.list.family:
        return right if right > x.disk.list.number else min(right, x.disk.right)
    if new.disks.get(x.id) != x.disk.id and w.flaw != "lost_disk_votes":
        return 0
    return right


def take_list(w: Cluster, x: Node, new: VoterList, right: int) -> None:
    """[T23] The list is in force here, on the disk at once."""
    if right != x.disk.right or new.family != x.disk.list.family:
        x.disk.mark = 0  # T29.1
    for key, copy in list(x.disk.tubes.items()):
        if copy.copy == 0 and key[1] != new.birth() and x.view(key).role != LEADS:
            del x.disk.tubes[key], x.views[key]  # T27.8: known by a vote of the list before alone
    old, x.disk.list, x.disk.right = x.disk.list, new, right
    x.growing = ()
    x.lame_at = {}
    for view in x.views.values():
        view.surveyed_at = NEVER
        if w.flaw != "confirms_without_right":
            kept = {v for v, right in old.voters.items() if new.voters.get(v, 0) == right}
            view.got = {at: got for at, got in view.got.items() if at[0] in kept}  # T28.5
        if view.role == ASKS:
            lose(view)
    x.is_dirty = True
    sync(w, x)


def unsettled(x: Node, voters: VoterList) -> bool:
    """[T28] Whether a tube keeps this node from agreeing to the next list (T28.3)."""
    for copy in x.disk.tubes.values():
        view = x.view(copy.key)
        epoch, node = copy.vote()
        if copy.family != voters.family:
            continue
        if (view.settled_epoch, view.settled_by) != (epoch, node) or view.settled is not voters:
            return True
    return False


def change_list(w: Cluster, x: Node, voters: dict[int, int]) -> bool:
    """[T28] A majority agrees on the next list (T28.2), here in one step."""
    old = x.disk.list
    new = next_list(x, voters)
    agree = []
    for v in sorted(old.voters):
        y = w.nodes[v]
        if y.is_up and not y.is_paused and y.disk.list is old and vouches(w, y, old):
            if not unsettled(y, old) or w.flaw in ("removed_voters_count", "not_settled"):
                agree.append(y)
    if x not in agree or len(agree) < old.majority():
        return False
    for y in agree[: old.majority()] if x in agree[: old.majority()] else agree:
        take_list(w, y, new, right_in(w, y, new))
    return True


def next_list(x: Node, voters: dict[int, int]) -> VoterList:
    """The list after the one here, with these voters."""
    old = x.disk.list
    disks = {}
    for v in voters:
        heard = x.heard.get(v)
        disks[v] = old.disks[v] if v in old.disks or heard is None else heard.disk
    new = VoterList(old.family, old.number + 1, voters, disks, x.id)
    new.forced, new.epochs = old.forced, old.epochs
    return new


def is_heard(x: Node, node: int) -> bool:
    """Whether that node is linked."""
    heard = x.heard.get(node)
    return heard is not None and heard.at + x.timeout > x.clock


def standing_by(w: Cluster, x: Node, node: int) -> bool:
    """[T28] Whether the node could be a voter (T28.4)."""
    heard = x.heard.get(node)
    return (
        heard is not None
        and is_heard(x, node)
        and heard.list is x.disk.list
        and not heard.asking
        and not heard.leaving
        and w.nodes[node].has_journal
    )


def look_at_growth(w: Cluster, x: Node) -> None:
    """[T28] A list of one becomes one of three (T28.9)."""
    old = x.disk.list
    if old.majority() > 1 or len(old.voters) != 1 or not vouches(w, x, old) or not x.has_journal:
        x.growing = ()
        return
    ready = [v for v in sorted(x.disk.known) if standing_by(w, x, v)]
    all_here = all(is_heard(x, v) and x.heard[v].list is old for v in x.disk.known)
    if len(ready) < 2 or not (all_here or w.flaw == "grows_unseen"):
        x.growing = ()  # nothing was said: it counts by the old list again
        return
    if not set(x.growing) <= set(ready) or not x.growing:
        x.growing = tuple(ready[:2])
    if w.flaw != "two_at_once" and not all(
        copy.family != old.family or is_covered(w, x, copy) for copy in x.disk.tubes.values()
    ):
        return
    voters = {x.id: x.disk.right, **dict.fromkeys(x.growing, old.number + 1)}
    take_list(w, x, next_list(x, voters), x.disk.right)


def is_covered(w: Cluster, x: Node, copy: Copy) -> bool:
    """[T28] Whether a majority of the next voters has all that may have been answered (T28.9)."""
    view = x.view(copy.key)
    if not is_running(w, x, copy):
        return False
    return counts(w, x, copy, view, next_disks(x)) >= max(view.begun, view.sure)


def look_at_own(w: Cluster, x: Node) -> None:
    """[T23] Move what is led under the own list to the list that stands (T23.7)."""
    own, voters = x.disk.own, x.disk.list
    for copy in x.disk.tubes.values():
        view = x.view(copy.key)
        if view.role == LEADS and own is not None and copy.family == own.family:
            for to in sorted(voters.voters):
                if view.ending_to == NOBODY and is_even(w, x, copy, voters, to):
                    move(w, x, copy, to)
        elif copy.given not in (0, voters.number) and copy.family == voters.family:
            if copy.vote()[1] == copy.leader == x.id and view.role == NONE:
                for to in sorted(voters.voters):
                    if copy.given != voters.number and is_even(w, x, copy, voters, to):
                        give(w, x, copy, to)


def is_even(w: Cluster, x: Node, copy: Copy, voters: VoterList, to: int) -> bool:
    """[T23] Whether a majority of that list has all of the tube, and the node `to`, too (T23.7)."""
    view = x.view(copy.key)
    even = []
    for v, disk in voters.disks.items():
        if v == x.id:
            is_there = vouches(w, x, voters)
        else:
            heard = x.heard.get(v)
            is_there = heard is not None and heard.list is voters and heard.vouches
        if is_there and (v == x.id or got_of(w, view, v, disk) >= len(copy.log)):
            even.append(v)
    if w.flaw == "given_to_one":
        return to in even
    return to in even and len(even) >= voters.majority()


def give(w: Cluster, x: Node, copy: Copy, to: int) -> None:
    """[T23] The voters of the list that stands choose its leader from now on (T23.7)."""
    voters = x.disk.list
    view = x.view(copy.key)
    if not is_even(w, x, copy, voters, to):
        return
    hop = copy.hop if copy.family == voters.family else copy.hop + 1
    epoch, newest = copy.copy, copy.newest()
    step_down(x, view)
    if w.flaw != "solo_votes_on":
        copy.family, copy.hop, copy.given = voters.family, hop, voters.number
    write(x)
    w.gave = (x.id, to)
    m = Yours(x.id, to, copy.key, epoch, newest, hop, voters.number, voters.family)
    if to != x.id:
        say_surely(w, x, m)


def force(w: Cluster, x: Node, voters: Iterable[int]) -> None:
    """[T28] ON CLUSTER VOTERS FORCE: these nodes vote from now on, others are dead (T28.8)."""
    old = x.disk.list
    number = (old.forced + 1) * 1000
    disks = {v: w.nodes[v].disk.id for v in voters}
    new = VoterList(old.family, number, dict.fromkeys(voters, number), disks, x.id)
    new.forced, new.epochs = old.forced + 1, w.unlike() << 20
    x.asking = False
    take_list(w, x, new, number)


def hear_mark(w: Cluster, x: Node, m: Pulse) -> None:
    """[T29] Remember the disk epoch of the sender; see what it knows of this one (T29.2, T29.4)."""
    family = m.list.family
    known = x.disk.marks.get(m.src, NO_MARK)
    is_other = known.family != family and w.flaw != "mark_of_other_list"
    if is_other or (m.right, m.mark) > (known.right, known.mark):
        x.disk.marks[m.src] = Mark(family, m.right, m.mark)
        x.is_dirty = True
    of_family, right, mark = m.knows
    if of_family != family and w.flaw != "mark_of_other_list":
        right = mark = 0
    is_trusted = w.flaw in ("old_disk_trusted", "lost_disk_votes")
    if right == x.disk.right and right > 0 and mark > x.disk.mark and not is_trusted:
        lose_right(w, x)
    if x.asking and right <= x.disk.right:
        x.told |= 1 << m.src
        look_at_asking(w, x)


def lose_right(w: Cluster, x: Node) -> None:
    """[T28] This node must be added again (T28.5)."""
    x.disk.id = w.unlike()
    x.disk.right = x.disk.mark = 0
    x.is_dirty = True


def look_at_asking(w: Cluster, x: Node) -> None:
    """[T29] Whether enough others have said what they know of this disk (T29.3)."""
    if not x.asking or not are_enough(w, x, x.disk.list):
        return
    if w.asks_all and x.asked is not None and not are_enough(w, x, x.asked):
        return
    x.asking = False


def are_enough(w: Cluster, x: Node, voters: VoterList) -> bool:
    """[T29] One of each majority, or with `trust` a majority with this node (T29.3)."""
    size = len(voters.voters)
    others = sum(1 for v in voters.voters if v != x.id and x.told >> v & 1)
    is_in = 1 if x.id in voters.voters else 0
    needed = size - size // 2 if w.asks_all else size // 2 + 1 - is_in
    return others >= min(needed, size - is_in)


def note_lame(x: Node, m: Pulse) -> None:
    """[T28] Since when a voter may not vote (T28.4)."""
    if m.vouches or m.asking or m.src not in m.list.voters:
        x.lame_at.pop(m.src, None)
    else:
        x.lame_at.setdefault(m.src, x.clock)


def start(w: Cluster, x: Node) -> None:
    """[T29] The node has started: its votes wait until others have told (T25.5, T29.3)."""
    x.is_up, x.is_paused = True, False
    x.forget()
    x.asking, x.asked = True, x.disk.list
    look_at_asking(w, x)
    if w.flaw == "old_disk_trusted":
        x.asking = False
    for copy in x.disk.tubes.values():
        if w.flaw == "epoch_again" and copy.led == copy.copy > 0 and copy.leader == x.id:
            if copy.voted <= copy.led:
                view = x.view(copy.key)
                x.asking, view.role, view.epoch = False, LEADS, copy.led


def new_disk(w: Cluster, x: Node) -> None:
    """The disk is empty, or there is none: the node makes a list of its own (T23.1)."""
    disk = w.unlike()
    x.disk = Disk(w.solo_list(x.id, x.has_journal, disk), disk)
    x.is_dirty = True
    x.due = []


def move(w: Cluster, x: Node, copy: Copy, to: int) -> None:
    """[T20] The tube takes no more changes until that node has all, or it took too long (T20.2)."""
    view = x.view(copy.key)
    if view.role == LEADS and view.ending_to == NOBODY:
        view.ending_to, view.ending_until = to, x.clock + x.timeout


def look_at_move(w: Cluster, x: Node, copy: Copy) -> None:
    """[T20] Hand the tube over, within its list or to the list that stands (T20.3, T27.6)."""
    view = x.view(copy.key)
    if view.role != LEADS or view.ending_to == NOBODY:
        return
    if not is_running(w, x, copy) or x.clock >= view.ending_until:
        view.ending_to = NOBODY
        return
    to, voters = view.ending_to, x.list_of(copy)
    heard = x.heard.get(to)
    disk = x.disk.id if heard is None else heard.disk
    if voters is None or (to != x.id and got_of(w, view, to, disk) < len(copy.log)):
        return
    if voters is not x.disk.list:
        give(w, x, copy, to)
    elif to in voters.voters and x.clock >= x.started + x.timeout:
        hand_over(w, x, copy, view, to)


def hand_over(w: Cluster, x: Node, copy: Copy, view: View, to: int) -> None:
    """[T27] Step down and name the next leader (T27.6)."""
    step_down(x, view)
    view.silent_at = x.clock
    view.wait_at = x.clock + (x.timeout if x.is_leaving else x.timeout // 2)
    epoch, newest = copy.copy, copy.newest()
    say_surely(w, x, Yours(x.id, to, copy.key, epoch, newest, copy.hop, copy.given, copy.family))


def on_yours(w: Cluster, x: Node, m: Yours) -> None:
    """[T27] ON RECV TUBE-YOURS: this node is a candidate at once (T27.6)."""
    copy = x.disk.tubes.get(m.key)
    if copy is None or copy.newest() != m.newest or copy.vote() != (m.epoch, m.src):
        return
    take_family(x, copy, m.family, m.hop, m.given)
    view = x.view(m.key)
    view.silent_at, view.wait_at, view.waits = x.clock, 0, 0
    view.resigned, view.resigned_by = max(view.resigned, m.epoch), m.src
    if w.flaw == "given_without_votes":
        copy.voted, copy.voted_for = m.epoch + 1, x.id
        view.epoch = m.epoch + 1
        win(w, x, copy, view)
        view.standing = -1
        for voter in x.disk.list.voters:
            x.echoed[voter] = x.clock


def take_family(x: Node, copy: Copy, family: int, hop: int, given: int) -> None:
    """[T23] Whose voters choose its leader, as the last of them said."""
    if (hop, given or FAR) > (copy.hop, copy.given or FAR):
        copy.family, copy.hop, copy.given = family, hop, given
        write(x)


def learn(x: Node, nodes: Iterable[int]) -> None:
    """[K3] The other nodes that this one knows."""
    known = x.disk.known.union(nodes) - {x.id}
    if known != x.disk.known:
        x.disk.known = known
        x.is_dirty = True


def is_known(x: Node, key: Key) -> bool:
    """[T17] Whether this node knows another tube of the name (T17.5)."""
    return any(other[0] == key[0] and other != key for other in x.disk.tubes)


def force_tube(w: Cluster, x: Node, copy: Copy) -> None:
    """[T21] ON TUBE HOME FORCE: its list is gone, this node leads it by its own one (T21.2)."""
    view = x.view(copy.key)
    view.floor = max(view.floor, w.unlike() << 20)
    if x.disk.own is None and not x.disk.list.solo:
        x.disk.own = w.solo_list(x.id, x.has_journal, x.disk.id)
    own = x.disk.own or x.disk.list
    copy.family, copy.hop, copy.given = own.family, copy.hop + 1, 0
    copy.voted, copy.voted_for = view.floor, x.id
    write(x)
