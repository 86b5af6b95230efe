"""What the model of leadership knows: lists of voters, disks, nodes, messages.

It knows no rule. A disk has what was written; what is on it for sure is a copy, made by a sync.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FAR: Final = 1 << 60
NOBODY: Final = -1
NEVER: Final = -(1 << 40)

NONE: Final = 0
ASKS: Final = 1  # it asks for votes
LEADS: Final = 2  # a majority has voted for it

Key = tuple[int, int]  # a tube: its name, and under which lists it was made (`birth`)
Entry = tuple[int, int]  # a change: epoch of its leader, a number that no other change has


FORCED_BITS: Final = 16


class BrokenError(Exception):
    """An invariant does not hold."""


class VoterList:
    """A list of voters; no two are equal. All lists that came out of one are a family."""

    def __init__(
        self,
        family: int,
        number: int,
        voters: dict[int, int],
        disks: dict[int, int],
        maker: int,
        solo: bool = False,
    ) -> None:
        self.family = family
        self.number = number
        self.voters = voters  # node: its right, the number of the list that gave it
        self.disks = disks  # node: the disk to which the right was given
        self.solo = solo  # of one node, made at its start
        self.maker = maker
        self.forced = 0  # how many lists of the family were made by force
        self.epochs = 0  # made by force: above all epochs of the lists before
        self.on_disk = True  # solo: its maker has a journal

    def majority(self) -> int:
        """So many of them decide."""
        return len(self.voters) // 2 + 1

    def birth(self) -> int:
        """What tells the tubes that are made under it from others of their names."""
        return self.family | self.forced << FORCED_BITS

    def __repr__(self) -> str:
        return f"{self.family}.{self.number}{'s' if self.solo else ''}{sorted(self.voters)}"


class Copy:
    """What a disk has of a tube."""

    __slots__ = (
        "copy", "family", "given", "hop", "key", "leader", "led", "log", "voted", "voted_for"
    )  # fmt: skip

    def __init__(self, key: Key) -> None:
        self.key = key
        self.family = key[1] & (
            (1 << FORCED_BITS) - 1
        )  # the lists whose majority chooses the leader
        self.hop = 0  # how often another family has got it
        self.given = 0  # the number of the list that it was given to; 0: one has led it there
        self.voted = 0
        self.voted_for = NOBODY
        self.led = 0  # the highest epoch of a leader heard of
        self.leader = NOBODY
        self.log: tuple[Entry, ...] = ()
        self.copy = 0  # the epoch of the leader that it is from; 0: nothing is here

    def twin(self) -> Copy:
        """A copy of it."""
        other = Copy.__new__(Copy)
        for name in Copy.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def vote(self) -> tuple[int, int]:
        """[T24] The last vote, or the leader under an epoch not below it (T24.1)."""
        if self.voted > self.led:
            return self.voted, self.voted_for
        return self.led, self.leader

    def newest(self) -> tuple[int, int]:
        """[T26] What votes compare."""
        return self.copy, len(self.log)


class Disk:
    """What a node has written."""

    __slots__ = ("id", "known", "list", "mark", "marks", "own", "right", "tubes")

    def __init__(self, own: VoterList, id: int) -> None:
        self.id = id  # a new one whenever what was on it is lost
        self.list = own
        self.right = 1
        self.own: VoterList | None = None  # its solo list, after it went over to another one
        self.mark = 0  # its disk epoch
        self.marks: dict[int, Mark] = {}  # the highest disk epochs of others
        self.known: frozenset[int] = frozenset()  # the other nodes
        self.tubes: dict[Key, Copy] = {}

    def twin(self) -> Disk:
        """A copy of it."""
        other = Disk.__new__(Disk)
        other.id, other.list, other.right, other.own = self.id, self.list, self.right, self.own
        other.mark, other.marks, other.known = self.mark, dict(self.marks), self.known
        other.tubes = {key: copy.twin() for key, copy in self.tubes.items()}
        return other


class View:
    """What a node keeps of a tube in memory."""

    def __init__(self) -> None:
        self.role = NONE
        self.epoch = 0  # it asks for, or leads under
        self.asked_at = 0
        self.standing = 0  # bits of the nodes that vote for this one
        self.got: dict[tuple[int, int], int] = {}  # so many changes are on that disk of that node
        self.begun = 0  # so many were there when it began to lead
        self.echoed: dict[int, int] = {}  # when it asked for the votes that others gave
        self.sure = 0  # so many it has answered
        self.won_by: VoterList | None = None
        self.few_at = NEVER
        self.ending_to = NOBODY  # the tube goes there
        self.ending_until = 0
        self.resigned = 0  # by the word of that node all epochs up to this one have ended
        self.resigned_by = NOBODY
        self.turn = 0
        self.turned = (0, NOBODY, False)  # as the last pulse told
        self.turns: dict[int, int] = {}  # heard of other nodes
        self.heard_said = NEVER  # when the node for which this one votes asked for it, or led
        self.floor = 0  # the highest epoch heard of
        self.silent_at = NEVER
        self.wait_at = 0
        self.waits = 0
        self.surveyed_at = NEVER
        self.answered = 0
        self.better = False
        self.settled: VoterList | None = None  # as the leader of that epoch says
        self.settled_epoch = 0
        self.settled_by = NOBODY
        self.settling: VoterList | None = None
        self.settling_len = 0


class Mark(NamedTuple):
    """The disk epoch of a node, under a right that a list of the family gave."""

    family: int
    right: int
    mark: int


NO_MARK: Final = Mark(0, 0, 0)


class Word(NamedTuple):
    """What a pulse says of a tube."""

    key: Key
    family: int
    hop: int
    given: int
    epoch: int  # of the vote of the sender
    node: int  # for which it votes
    is_up: bool  # the sender leads the tube or asks for votes
    led: int  # under this epoch the sender leads or has led it; 0: another one does
    is_led: bool
    turn: int  # grows whenever vote, or is_up, is another one
    leader: tuple[int, int]  # the highest epoch of a leader that the sender knows, and which
    log: tuple[Entry, ...]
    settled: VoterList | None
    got: tuple[int, int]  # what the disk of the sender has


class Pulse(NamedTuple):
    """TUBE-PULSE, with TUBE-STANDS, TUBE-COPY and TUBE-GOT, which go before it."""

    src: int
    dst: int
    list: VoterList
    disk: int
    said: int  # by the clock of the sender
    echo: int  # when the receiver said its last pulse that was heard
    timeout: int
    vouches: bool
    asking: bool
    leaving: bool
    right: int
    mark: int
    knows: Mark  # what it knows of the receiver's disk
    known: frozenset[int]
    words: tuple[Word, ...]


class Vote(NamedTuple):
    """TUBE-VOTE."""

    src: int
    dst: int
    list: VoterList
    key: Key
    hop: int
    given: int
    is_survey: bool
    epoch: int
    newest: tuple[int, int]
    said: int


class Voted(NamedTuple):
    """TUBE-VOTED."""

    src: int
    dst: int
    list: VoterList
    key: Key
    is_survey: bool
    epoch: int
    answer: str
    at: int  # the epoch of the vote of the sender
    said: int
    timeout: int


class Yours(NamedTuple):
    """TUBE-YOURS."""

    src: int
    dst: int
    key: Key
    epoch: int
    newest: tuple[int, int]
    hop: int
    given: int
    family: int


Message = Pulse | Vote | Voted | Yours


class Heard(NamedTuple):
    """The last pulse of another node."""

    at: int  # by the clock of the receiver
    list: VoterList
    disk: int
    vouches: bool
    asking: bool
    leaving: bool
    known: frozenset[int]


class Node:
    """A node: its disk, its memory, its clock."""

    __slots__ = (
        "asked",
        "asking",
        "bound",
        "clock",
        "disk",
        "due",
        "echoed",
        "growing",
        "has_journal",
        "heard",
        "id",
        "is_dirty",
        "is_leaving",
        "is_paused",
        "is_up",
        "lame_at",
        "last",
        "promised",
        "safe",
        "seen",
        "speed",
        "started",
        "timeout",
        "timeouts",
        "told",
        "views",
    )  # fmt: skip

    def __init__(self, id: int, disk: Disk, timeout: int, speed: int) -> None:
        self.id = id
        self.disk = disk
        self.safe = disk.twin()
        self.has_journal = True
        self.is_dirty = False
        self.is_up = True
        self.is_paused = False
        self.is_leaving = False
        self.timeout = timeout
        self.speed = speed
        self.clock = 0
        self.forget()
        self.bound = NEVER

    def forget(self) -> None:
        """Only the disk is left."""
        self.seen = self.clock  # the time by which it acts
        self.started = self.clock
        self.bound = self.clock + self.timeout  # it may have promised before
        self.asking = False
        self.asked: VoterList | None = None  # the list that was on its disk
        self.told = 0
        self.due: list[Message] = []  # they wait for a sync
        self.last: dict[int, int] = {}  # node: what its clock said in the last pulse
        self.heard: dict[int, Heard] = {}
        self.echoed: dict[int, int] = {}
        self.promised: dict[int, int] = {}
        self.timeouts: dict[int, int] = {}
        self.views: dict[Key, View] = {}
        self.growing: tuple[int, ...] = ()  # the voters that are to come
        self.lame_at: dict[int, int] = {}

    def view(self, key: Key) -> View:
        """What is in memory of the tube."""
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = View()
        return view

    def list_of(self, copy: Copy) -> VoterList | None:
        """The list by which this node votes about the tube."""
        if copy.family == self.disk.list.family:
            return self.disk.list
        own = self.disk.own
        return own if own is not None and own.family == copy.family else None
