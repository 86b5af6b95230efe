"""What a node knows of votes about leaders: voters, heartbeats, promises (SPEC T23 to T27).

Plain data: log/vote_state.py records it and reads it back, election/ changes it.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.msgs.bus import AnyMessage
from tuque.core.msgs.packed import DISK_BYTES, FAMILY_BYTES
from tuque.tubes.model.tube import Tube

# answers to TUBE-VOTE (T26.4)
YES: Final = 0
OTHER_LIST: Final = 1  # another list of voters, or none
NO_VOTER: Final = 2  # the receiver or the sender may not vote
UNKNOWN: Final = 3  # no such tube, or it is not led by votes
OLD_EPOCH: Final = 4  # the receiver stands with another node, under this epoch or a higher one
PROMISED: Final = 5  # to another node
BETTER: Final = 6  # the receiver has a newer copy

# steps of VOTERS
NOT_IN_FORCE: Final = 1  # only in the journal: this node knows no list
IN_FORCE: Final = 2
INVITED: Final = 5  # only on the wire: the receiver gets copies, and then a vote (T28.4)

# flags of VOTERS
SOLO: Final = 1  # a node made the list of itself at its start (T23.1)
NO_JOURNAL: Final = 2  # solo: that node has no journal

# steps of VOTERS-NEXT (T28.2)
ASKED: Final = 1  # may this attempt be made?
PROMISED_NEXT: Final = 2  # yes: no earlier attempt is answered any more
OFFERED: Final = 3  # this is the list
WRITTEN: Final = 4  # it is on the sender's disk
REFUSED: Final = 5

# why a node stands up (T27.1)
SILENT: Final = 1  # the leader is silent
GAVE_UP: Final = 2  # it gave up
GIVEN: Final = 3  # it gave the tube to this node (T27.6)
AGAIN: Final = 4  # this node led it, until its start or without a lease (T27.5, T25.6)
FORCED: Final = 5  # its copy counts as whole by command (T27.12)
REASONS: Final = [
    "?",
    "its leader was silent",
    "its leader gave up",
    "its leader gave it to this node",
    "this node led it before",
    "by command, as no voter had all of it",
]

PULSES: Final = 64
NOT_ASKED: Final = -1  # the journal, about the record of a new tube
NO_DISK: Final = bytes(DISK_BYTES)
FORCE_GAP: Final = 1 << 32  # a list that was made by force has a number as much higher
FORCE_EPOCHS: Final = 48  # bits of the epochs between two lists that were made by force (T28.8)
FORCE_ELECTIONS: Final = 20  # of these, the lowest bits: elections count them up
VOTERS_LEAST: Final = 3  # so many can lose one (T28.9)
SILENT_MS: Final = 600_000  # a restart or a short cut moves no copies


@final
class Voters:
    """The nodes that vote about leaders (T23)."""

    def __init__(
        self,
        number: i64,
        origin: bytes,
        rights: dict[bytes, int],
        disks: dict[bytes, bytes] | None = None,
    ) -> None:
        self.number = number
        self.origin = origin  # 16 bytes: which list was the first one
        self.rights = rights  # by node id
        self.family = origin[:FAMILY_BYTES]  # all lists that came out of one have the same
        self.is_solo = False  # its only voter made it at its start (T23.1)
        self.has_journal = True  # solo: so has that node
        self.disks: dict[bytes, bytes] = {}  # to which rights were given, but in the first list
        if disks is not None:
            self.disks = disks

    def rows(self) -> list[tuple[bytes, int, bytes]]:
        """Of each voter its id, its right, and the disk to which that was given."""
        found: list[tuple[bytes, int, bytes]] = []
        for node_id, right in self.rights.items():
            found.append((node_id, right, self.disks.get(node_id, NO_DISK)))
        return found

    def flags(self) -> i64:
        """As VOTERS has them."""
        if not self.is_solo:
            return 0
        return SOLO if self.has_journal else SOLO | NO_JOURNAL

    def is_only(self, node_id: bytes) -> bool:
        """Whether that node alone decides."""
        return len(self.rights) == 1 and node_id in self.rights

    def wins(self, other: "Voters") -> bool:
        """[T23] Whether nodes that know both use this one (T23.4)."""
        if not self.is_solo or not other.is_solo:
            return other.is_solo and not self.is_solo
        if self.has_journal != other.has_journal:
            return self.has_journal
        return min(self.rights) < min(other.rights)

    def majority(self) -> i64:
        """The number of voters that decides."""
        return len(self.rights) // 2 + 1

    def epochs_before(self) -> i64:
        """[T28] No list before the last FORCE had an epoch above this one (T28.8).

        Of two lists that were forced apart each has its own, by their origins.
        """
        forced: i64 = self.number // FORCE_GAP
        if forced == 0:
            return 0
        word = int.from_bytes(self.origin[FAMILY_BYTES : FAMILY_BYTES + 4], "big")
        own: i64 = word % (1 << (FORCE_EPOCHS - FORCE_ELECTIONS))
        return forced * (1 << FORCE_EPOCHS) + own * (1 << FORCE_ELECTIONS)

    def epochs_above(self, epoch: i64) -> i64:
        """[T21] Above all epochs of the lists before, and those of another FORCE (T21.5)."""
        word = int.from_bytes(self.origin[:4], "big")
        own: i64 = word % (1 << (FORCE_EPOCHS - FORCE_ELECTIONS))
        return ((epoch >> FORCE_EPOCHS) + 1) * (1 << FORCE_EPOCHS) + own * (1 << FORCE_ELECTIONS)

    def is_same(self, number: i64, origin: bytes) -> bool:
        """Whether it is that list."""
        return self.number == number and self.origin == origin


def voters_in(
    number: i64, origin: bytes, rows: list[tuple[bytes, int, bytes]], flags: i64 = 0
) -> Voters:
    """The list with these voters: of each its id, its right, its disk."""
    rights: dict[bytes, int] = {}
    disks: dict[bytes, bytes] = {}
    for node_id, right, disk in rows:
        rights[node_id] = right
        if disk != NO_DISK:
            disks[node_id] = disk
    found = Voters(number, origin, rights, disks)
    found.is_solo = flags & SOLO != 0
    found.has_journal = flags & NO_JOURNAL == 0
    return found


@final
class NextList:
    """What this node has said about the list after the one in force; on its disk (T28.2)."""

    def __init__(self, number: i64, origin: bytes, node: bytes) -> None:
        self.number = number
        self.origin = origin
        self.attempt: i64 = 0  # the newest one that it heard of
        self.node = node
        self.written_attempt: i64 = 0  # whose list it has written down; 0: none
        self.written_node = node
        self.voters: list[tuple[bytes, int, bytes]] = []  # of that list: id, right, disk

    def is_before(self, attempt: i64, node: bytes) -> bool:
        """Whether that attempt is newer than all heard of."""
        return self.attempt < attempt or (self.attempt == attempt and self.node < node)


@final
class Change:
    """A voter that this node adds to the list, or removes from it (T28)."""

    def __init__(self, node: bytes, is_added: bool, until_ms: i64) -> None:
        self.node = node
        self.is_added = is_added
        self.disk = NO_DISK  # of a node that is added, as heard
        self.second = b""  # another node that is added with it (T28.9)
        self.second_disk = NO_DISK
        self.until_ms = until_ms
        self.client: i64 = -1  # that waits for it
        self.serial: i64 = 0
        self.number: i64 = 0  # of the list that is being agreed on
        self.step: i64 = 0  # 0: asked nobody yet
        self.attempt: i64 = 0
        self.again_ms: i64 = 0  # the next attempt is not before
        self.answered: i64 = 0  # slots
        self.best_attempt: i64 = 0  # of the lists that others have written down
        self.best_node = b""
        self.offered: list[tuple[bytes, int, bytes]] = []  # id, right, disk
        self.tube = b""  # which is not settled


@final
class Forcing:
    """A list by command, or a leader (T21.5), while other nodes say what they have (T28.8)."""

    def __init__(self, nodes: list[bytes], client: i64, serial: i64, until_ms: i64) -> None:
        self.nodes = nodes  # that are to be the voters
        self.client = client
        self.serial = serial
        self.until_ms = until_ms
        self.tube: Tube | None = None  # that this node is to lead by its own list (T21.5)
        self.waiting: dict[int, dict[bytes, None]] = {}  # by slot: not told of yet
        self.copies: dict[bytes, dict[bytes, tuple[int, int]]] = {}  # by tube, then node

    def add(self, name: bytes, epoch: int, seq: int, node_id: bytes) -> None:
        """A node has that copy of the tube; epoch 0: none."""
        copies = self.copies.get(name)
        if copies is None:
            copies = self.copies[name] = {}
        copies[node_id] = (epoch, seq)

    def newest(self, name: bytes) -> tuple[int, int]:
        """The newest copy that the named nodes have of the tube; epoch 0: they have none."""
        found = (0, 0)
        for node_id, copy in self.copies[name].items():
            if copy > found and node_id in self.nodes:
                found = copy
        return found

    def newer(self) -> tuple[bytes, bytes]:
        """A tube of which a node that is not named has a newer copy, and which; empty: none."""
        for name, copies in self.copies.items():
            newest = self.newest(name)
            for node_id, copy in copies.items():
                if copy > newest:
                    return name, node_id
        return b"", b""

    def older(self) -> tuple[bytes, bytes]:
        """A tube of which a named node has an older copy, and which; empty: none (T28.8).

        Only where a majority of the named nodes lacks the newest one: it would elect that node.
        """
        for name, copies in self.copies.items():
            newest = self.newest(name)
            behind = [x for x in self.nodes if copies.get(x, (0, 0)) < newest]
            if len(behind) > len(self.nodes) // 2:
                for node_id in behind:
                    if copies.get(node_id, (0, 0)) > (0, 0):
                        return name, node_id
        return b"", b""


@final
class Due:
    """What is sent once the disk has a record (T23.2, T26.2, T27.3)."""

    def __init__(self, wish: i64, slot: i64, message: AnyMessage) -> None:
        self.wish = wish  # granted by the journal
        self.slot = slot
        self.message = message


@final
class VoterState:
    """All that a node knows about votes. Slots are those of core/node/peers.py."""

    def __init__(self) -> None:
        self.is_on = False  # this node may be a voter: `tube-failover`
        self.voters: Voters | None = None
        self.unmet: i64 = 0  # slots that were known when the solo list was made, not heard since
        self.own: Voters | None = None  # the solo list of this node, which lost to `voters` (T23.7)
        self.right: i64 = 0  # of this node, under `voters`; 0: none
        self.disk = NO_DISK  # the id of what is on the disk of this node (T28.5)
        self.strangers: dict[bytes, bytes] = {}  # nodes that go by another list: its origin (T23.4)
        self.next: NextList | None = None
        self.change: Change | None = None  # that this node makes now
        self.outside: i64 = 0  # slots of nodes without a vote that go by the list (T28.4)
        self.whole: i64 = 0  # of them, those that have all of every tube
        self.wanted: i64 = VOTERS_LEAST  # as many vote by themselves: `tube-voters` (T28.4)
        self.guest = b""  # the node that this one invited last
        self.silent_ms: i64 = SILENT_MS  # after so long a voter is replaced (T28.4)
        self.since_ms: i64 = 0  # voters are silent since then at the earliest
        self.keeps_until_ms: i64 = 0  # this node has copies without a vote until then (T18.1)
        self.must_sort = False  # which tubes it has copies of is to be looked at again
        self.lame: i64 = 0  # slots of voters that may not vote
        self.lame_ms: i64 = 0  # since when there is one; 0: there is none
        self.vouching: dict[int, int] = {}  # the right by which each node votes, by slot
        self.disks: dict[int, bytes] = {}  # the disks of nodes, by slot (T28.5)
        self.asking: i64 = 0  # slots of voters that do not know yet whether their disk is old
        self.no_journal: i64 = 0  # slots of nodes whose journal is off; 0 is this node (T23.3)
        self.asks_all = False  # `failover-disks ask`; from here on marks (T29)
        self.mark: i64 = 0  # of this node under its right; on its disk
        self.mark_next: i64 = 0  # the one that is recorded; pulses have it once it is on the disk
        self.mark_query: i64 = 0  # of the journal, for that one
        self.mark_binding: i64 = 0  # binding records when it was recorded
        self.mark_ms: i64 = 0  # when it was recorded
        self.marks: dict[bytes, tuple[int, int]] = {}  # right and highest mark heard, by voter
        self.has_heard = False  # one of them is not recorded yet
        self.has_gap = False  # a repair took records out of the journal under this right (T29.6)
        self.is_asking = False  # this node waits for what others have heard of it (T29.3)
        self.asked: dict[bytes, int] = {}  # the voters of the list that was on its disk
        self.told: dict[bytes, None] = {}  # nodes that said what they have heard
        self.able: i64 = 0  # slots of linked nodes that know these messages (T23.3)
        self.willing: i64 = 0  # of them, those that may be voters
        self.open: i64 = 0  # of the able ones, those that were sent the list and all stands
        self.begin_leases()
        self.moved: list[Tube] = []
        self.due: list[Due] = []
        self.fresh: list[Tube] = []  # that this node has just learned of, or made (T27.8)
        self.failing_ms: i64 = 0  # since when the journal cannot be written; 0: it can
        self.look_ms: i64 = 0  # when to look who must stand up; 0: at the next round
        self.elections_won: i64 = 0
        self.elections_lost: i64 = 0
        self.won_by: list[int] = [0] * len(REASONS)  # elections won, by reason

    def begin_leases(self) -> None:
        """Heartbeats, promises and leases (T25)."""
        self.beat_ms: i64 = 0  # when the last pulse was sent; 0: one is due
        self.round: i64 = 0  # number of the last pulse
        self.said: list[int] = [0] * PULSES  # when the latest pulses were sent
        self.heard: dict[int, int] = {}  # by slot: its newest round
        self.echoed: dict[int, int] = {}  # by slot: when the pulse was sent that it echoed
        self.timeouts: dict[int, int] = {}  # by slot: its timeout in ms
        self.shortest_ms: i64 = 0  # of the voters as far as known; 0: no pulse yet (T25.1)
        self.is_uneven = False  # the voters have different ones, which was told
        self.promised: dict[int, int] = {}  # by slot: until when this node promised it (T25.3)
        self.bound_ms: i64 = 0  # promises of a life before, or before the list, last until then
        self.long_ms: i64 = 0  # a longer timeout, by which promises were made (T25.5, T25.7)
        self.long_until_ms: i64 = 0  # they last until then
        self.ticked_ms: i64 = 0  # when this node last did what is due about votes
        self.late_ms: i64 = 0  # it did not for long: it asks for no votes until then (T27.2)
        self.grows_ms: i64 = 0  # it does not try to before
        self.forcing: Forcing | None = None
        self.growing: Voters | None = None  # the only voter counts by this next list, too (T28.9)
        self.is_renewed = False  # leases are to be computed again
        self.is_short = False  # one of them ends soon, or there is none
        self.lease_ms: i64 = 0  # the first lease here that ends; 0: none

    def meet(self, tube: Tube) -> None:
        """[T27] The node votes for the maker of a tube once it has that on its disk (T27.8)."""
        if tube.led_by_votes:
            tube.vote_wish = NOT_ASKED
            self.fresh.append(tube)
        else:
            self.moved.append(tube)

    def take_right(self, right: i64) -> None:
        """This node's right is another one: its marks begin anew (T29.1)."""
        if right != self.right:
            self.right = right
            self.mark = 0
            self.mark_next = 0
            self.mark_query = 0

    def forget_family(self) -> None:
        """This node uses a list of another origin: rights and disk epochs begin anew (T29.1)."""
        self.mark = 0
        self.mark_next = 0
        self.mark_query = 0
        self.marks = {}
        self.vouching = {}

    def hurry(self) -> None:
        """Check at the next round who must be a candidate."""
        self.look_ms = 0

    def in_force(self) -> Voters | None:
        """The list that this node uses, whatever `tube-failover` says now (T23.4)."""
        return self.voters

    def list_of(self, tube: Tube) -> Voters | None:
        """[T23] The list by which this node votes about the tube; None: by none (T23.4, T23.7)."""
        voters = self.voters
        if voters is not None and voters.family == tube.family:
            return voters
        own = self.own
        return own if own is not None and own.family == tube.family else None

    def decides(self, tube: Tube, node_id: bytes) -> bool:
        """[T27] Whether that node, this one, alone chooses the leader of the tube (T27.10)."""
        voters = self.list_of(tube)
        if voters is None or not voters.is_only(node_id):
            return False
        if tube.from_number not in (0, voters.number):
            return False
        return voters is self.own or voters.rights[node_id] == self.right

    def leads(self, tube: Tube) -> bool:
        """[T23] Whether the tube is led by votes, also where no list is known (T23.5)."""
        return tube.led_by_votes
