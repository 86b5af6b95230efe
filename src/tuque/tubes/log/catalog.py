"""The catalog that this node sends to others: leaders of tubes, and dropped tubes (SPEC T17)."""

from typing import Final

from mypy_extensions import i64

from tuque.core.msgs.bus import TubeAt, TubesTold
from tuque.core.node.node import Node
from tuque.core.node.peers import say, slots_of
from tuque.core.records.jobs import Records
from tuque.core.records.tubes import GONE, HomeRecord, tell_tube_home
from tuque.tubes.model.tube import NO_FAMILY, RUNNING, Tube
from tuque.tubes.model.tubes import Dropped, Tubes

# flags of TubeAt
IS_TEMPORARY: Final = 1
IS_DROPPED: Final = 2
IS_RUNNING: Final = 4  # on the sender
PAUSE_SHIFT: Final = 3  # two bits from here on: the pause (T17.7)
IS_ASIDE: Final = 32  # the sender follows another tube of that name (T17.5)
FAILS_OVER: Final = 64  # votes choose its leader (T23.5)
BY_MAJORITY: Final = 128  # of the voters (T18.5)
IS_CONFIRMED: Final = 256  # a majority has stood with its leader (T17.5)
IS_IMPLICIT: Final = 512  # an enqueue made it (T2.9)

# flags of TubesTold
READ_ONLY: Final = 1
CAN_VOTE: Final = 2  # it may be a voter (T23.3)
KNOWS_VOTES: Final = 4  # it knows the messages of votes
JOURNAL_OFF: Final = 8  # it has no journal (T23.3)

TOLD_TUBES: Final = 1_000  # per message
DROPPED_MAX: Final = 10_000  # dropped tubes that are remembered
DROPPED_OF_NAME: Final = 1_000  # of these, with one name


def at_of(n: Node, tube: Tube) -> TubeAt:
    """The catalog's entry of a tube."""
    flags = tube.pause << PAUSE_SHIFT
    if tube.is_temporary:
        flags |= IS_TEMPORARY
    if tube.is_mine and tube.state == RUNNING:
        flags |= IS_RUNNING
    if tube.led_by_votes:
        flags |= FAILS_OVER
    if tube.by_majority:
        flags |= BY_MAJORITY
    if tube.is_confirmed:
        flags |= IS_CONFIRMED
    if tube.is_implicit:
        flags |= IS_IMPLICIT
    return TubeAt(
        tube.name,
        tube.maker,
        tube.made_ns,
        tube.home,
        tube.epoch,
        tube.seq if tube.is_mine else max(tube.seq, tube.told_seq),
        tube.begin_seq,
        tube.sync,
        tube.ttl_ms,
        tube.ttr_ms,
        tube.pri,
        tube.capacity,
        tube.next_number,
        flags,
        [tube.type, tube.storage_mode, tube.engine, tube.on_task_change],
        tube.family,
        tube.moves,
        tube.from_number,
    )


def gone_at(name: bytes, gone: Dropped) -> TubeAt:
    """The catalog's entry of a dropped tube."""
    words = [b"", b"", b"", b""]
    return TubeAt(
        name, gone.maker, gone.made_ns, gone.maker, gone.epoch, 0, 0, 1, 0, 0, 0, 0, 0,
        IS_DROPPED, words, NO_FAMILY, 0, 0,
    )  # fmt: skip


def told(t: Tubes, is_all: bool, tubes: list[TubeAt]) -> TubesTold:
    """A catalog message."""
    flags = KNOWS_VOTES | READ_ONLY if t.is_read_only or t.is_stopping else KNOWS_VOTES
    if t.voter_state.is_on:
        flags |= CAN_VOTE
    if t.voter_state.no_journal & 1:
        flags |= JOURNAL_OFF
    return TubesTold(is_all, flags, t.port, tubes)


def tell_all(n: Node, t: Tubes, slot: i64) -> None:
    """[T17] A link is open: send every tube (T17.2), and dropped ones (T17.6).

    The last message is marked as the end.
    """
    tubes: list[TubeAt] = []
    for name, drops in t.dropped.items():
        for gone in drops.values():
            tubes.append(gone_at(name, gone))
    for tube in t.by_name.values():
        tubes.append(at_of(n, tube))
    tubes.extend(t.aside.values())
    while len(tubes) > TOLD_TUBES:
        say(n, slot, told(t, False, tubes[:TOLD_TUBES]))
        tubes = tubes[TOLD_TUBES:]
    say(n, slot, told(t, True, tubes))


def announce(n: Node, t: Tubes, tubes: list[Tube], but: i64) -> None:
    """[T17] Send changed entries to all nodes (T17.2) except the slot `but`."""
    found: list[TubeAt] = []
    for tube in tubes:
        found.append(at_of(n, tube))
    tell_nodes(n, told(t, False, found), but)


def announce_gone(n: Node, t: Tubes, name: bytes, gone: Dropped, but: i64) -> None:
    """[T17] Announce a drop (T17.6)."""
    tell_nodes(n, told(t, False, [gone_at(name, gone)]), but)


def tell_nodes(n: Node, m: TubesTold, but: i64) -> None:
    """Send it to all linked nodes except the slot `but`."""
    if n.is_loading:
        return
    for slot in slots_of(n.linked & ~n.forgotten):
        if slot != but:
            say(n, slot, m)


def record_gone(records: Records, name: bytes, gone: Dropped) -> None:
    """Record that the tube was dropped, not just set aside for another one."""
    r = HomeRecord()
    r.name = name
    r.epoch = gone.epoch
    r.made_ns = gone.made_ns
    r.maker = gone.maker
    r.home = gone.maker
    r.flags = GONE
    tell_tube_home(records, r)


def bury_tube(t: Tubes, name: bytes, gone: Dropped) -> None:
    """[T17] Remember that this very tube was dropped, whatever else has its name (T17.6).

    A drop says nothing of other tubes of the name: they may have been made apart (T17.5), and the
    clocks of two makers do not tell which was first. Above the limits (L1) the oldest drop of the
    name is forgotten, or the oldest one of the name that was not dropped for longest.
    """
    which = (gone.maker, gone.made_ns)
    drops = t.dropped.pop(name, None)
    if drops is None:
        drops = {}
    if drops.pop(which, None) is None:
        t.dropped_count += 1
    drops[which] = gone
    t.dropped[name] = drops
    if len(drops) > DROPPED_OF_NAME:
        forget_oldest(t, name, drops)
    elif t.dropped_count > DROPPED_MAX:
        for oldest, those in t.dropped.items():
            forget_oldest(t, oldest, those)
            break


def forget_oldest(t: Tubes, name: bytes, drops: dict[tuple[bytes, int], Dropped]) -> None:
    """Forget the oldest drop of that name."""
    for maker, made_ns in drops:
        forget_drop(t, name, maker, made_ns)
        break


def forget_drop(t: Tubes, name: bytes, maker: bytes, made_ns: i64) -> None:
    """Forget that drop, which this node remembers."""
    drops = t.dropped[name]
    del drops[(maker, made_ns)]
    t.dropped_count -= 1
    if len(drops) == 0:
        del t.dropped[name]


def drop_of(t: Tubes, name: bytes, maker: bytes, made_ns: i64) -> Dropped | None:
    """The drop of that very tube, if this node remembers one."""
    drops = t.dropped.get(name)
    return None if drops is None else drops.get((maker, made_ns))


def has_room_for_drop(t: Tubes, name: bytes) -> bool:
    """Whether one more drop of that name makes this node forget no other one."""
    drops = t.dropped.get(name)
    of_name = 0 if drops is None else len(drops)
    return t.dropped_count < DROPPED_MAX and of_name < DROPPED_OF_NAME
