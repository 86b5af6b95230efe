"""The nodes of the cluster: which belong to it, live, are dialled (SPEC K1, K3, K4, K6, K8).

A node learns of others by CLUSTER MEET and from heartbeats. It sends heartbeats to each linked
node; their gossip about third nodes spreads addresses, suspicions and removals. The shell owns
the sockets: it dials what `tick` returns and reports what became of each link. No clock and no
chance here.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.cluster.duplicate_ids import DuplicateId, Refused, check_life, gossip_of_duplicate, shown
from tuque.cluster.meets import Meetings
from tuque.cluster.member import (
    DIAL_MIN_MS,
    FAILED,
    FAILING,
    LEAVING,
    LOADING,
    STEADY_MS,
    SUSPECTED,
    TWINS,
    Member,
)
from tuque.core.copies.federation import look_again
from tuque.core.copies.replicate import on_reach_changed
from tuque.core.dispatch.messages import on_link_down, on_link_up
from tuque.core.msgs.bus import Gossip, Heartbeat
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    TooManyNodes,
    begin_round,
    journal_fails,
    say,
    set_expected,
    set_failing,
    set_leaver,
    set_reachable,
    slot_for,
)
from tuque.core.repair.claims import on_away
from tuque.core.repair.drain import set_leaving
from tuque.core.repair.node_loss import on_forget, on_incarnation
from tuque.tubes.election.lease import promise_ms
from tuque.tubes.policy import tubes_of

BEAT_MIN_MS: Final = 100
BEAT_MAX_MS: Final = 1_000
SECOND_DIALER_MS: Final = 1_500  # how long the node with the higher id lets the other one dial
LATE_MS: Final = 2 * BEAT_MAX_MS  # K4.3
GOSSIP_ALL: Final = 16  # nodes in the gossip of one heartbeat; larger clusters are sent in parts
HOST_MAX: Final = 255
FORGOTTEN: Final = "forgotten"
UNMET: Final = "unmet"


def life_number(life: i64, mark: bytes) -> i64:
    """An incarnation as one number: later ones are higher (K1.2), never 0 (K2.2)."""
    return (life & 0x3FFFFF) << 40 | int.from_bytes(mark[:5], "big") | 1


@final
class Members:
    """The other nodes of the cluster as this node knows them."""

    def __init__(self, n: Node, life: i64, mark: bytes, timeout_ms: i64) -> None:
        self.n = n
        self.life = life
        self.mark = mark
        self.timeout_ms = timeout_ms
        n.lives[0] = life_number(life, mark)
        n.limits.node_timeout_ms = timeout_ms
        self.port: i64 = 0  # of this node, for clients
        self.number: i64 = 0  # this node's removal number; odd: it was forgotten
        self.is_unmet = False  # a cluster expects another node at its address (K1.4)
        self.by_id: dict[bytes, Member] = {}
        self.by_slot: dict[int, Member] = {}
        self.left_behind: dict[bytes, None] = {}  # no longer members since CLUSTER RESET
        self.meetings = Meetings()
        self.beat_ms: i64 = 0
        self.said_flags: i64 = 0  # in the last heartbeat
        self.turn: i64 = 0  # start of the next part of the gossip
        self.stale: list[int] = []  # slots whose links the shell must close
        self.duplicate_id = DuplicateId(timeout_ms)  # why this node must not serve (K1.3)
        self.is_changed = False  # nodes.conf must be written
        self.lease_ms: i64 = 0  # of promises to leaders, as nodes.conf was last written (T25.5)
        self.sent: i64 = 0
        self.received: i64 = 0

    # ---- commands and state

    def size(self) -> i64:
        """Number of nodes in the cluster, including this one."""
        return 1 + len(self.alive())

    def alive(self) -> list[Member]:
        """The other nodes that are not forgotten."""
        found: list[Member] = []
        for one in self.by_id.values():
            if not one.is_forgotten():
                found.append(one)
        return found

    def lines(self) -> str:
        """The lines of CLUSTER NODES about others, including meetings."""
        text = ""
        for one in self.alive():
            text += one.line(journal_fails(self.n, one.slot), True)
        return text + self.meetings.lines()

    def meet(self, host: str, port: i64, bus_port: i64) -> None:
        """[K3] CLUSTER MEET: dial the node; the meeting shows the progress (K3.1)."""
        self.meetings.begin(host, port, bus_port, self.n.now_ms)
        self.beat_ms = min(self.beat_ms, self.n.now_ms)

    def forget(self, node_id: bytes) -> bool:
        """[K6] CLUSTER FORGET: remove the node, with a number that spreads (K6.1)."""
        one = self.by_id.get(node_id)
        if one is None or one.is_forgotten():
            return False
        self.set_number(one, one.number + 1)
        return True

    def runs(self, node_id: bytes) -> bool:
        """[K6] Whether the other node is there: it would go on when it is forgotten (K6.5)."""
        one = self.by_id.get(node_id)
        return one is not None and one.is_linked and not one.is_suspected

    def forget_all(self) -> None:
        """CLUSTER RESET: this node is alone again; the others do not change."""
        for one in list(self.by_id.values()):
            if one.is_linked:
                self.stale.append(one.slot)
            self.left_behind[one.node_id] = None
        self.n.expected = 0
        self.number = 0  # K6.4
        self.is_unmet = False
        self.by_id = {}
        self.by_slot = {}
        self.meetings = Meetings()
        self.is_changed = True
        self.count_others()

    def count_others(self) -> None:
        """Set the core's set of cluster nodes."""
        others: i64 = 0
        for one in self.by_id.values():
            if not one.is_forgotten():
                others |= 1 << one.slot
        if others != self.n.others:
            self.n.others = others
            tubes_of(self.n).on_reach(self.n)

    def renew(self, life: i64, mark: bytes) -> None:
        """Start a new incarnation without jobs, as CLUSTER RESET does."""
        self.life = life
        self.mark = mark
        self.n.lives[0] = life_number(life, mark)
        # what was received is of the former one (K1.3)
        self.duplicate_id = DuplicateId(self.timeout_ms)
        self.work_or_not()

    def restore(self, node_id: bytes, host: str, port: i64, bus_port: i64, number: i64) -> None:
        """Add a node of nodes.conf: it is dialled as if its link had just been lost."""
        if node_id == self.n.node_id or node_id in self.by_id:
            return
        try:
            one = self.add(node_id)
        except Refused:
            return  # too many: gossip adds it once there is room
        one.host = host
        one.port = port
        one.bus_port = bus_port
        one.number = number
        if one.is_forgotten():
            self.n.forgotten |= 1 << one.slot
        self.count_others()
        self.reach(one)

    def kept_text(self, own_line: str) -> str:
        """The text of nodes.conf; `own_line` is this node's line in CLUSTER NODES."""
        text = own_line
        for one in self.by_id.values():
            line = one.line().rstrip()
            text += f"{line} bus:{one.bus_port} number:{one.number}\n"
        keys = "".join([f" idkey {key.hex()}" for key in self.n.ids.older])  # G6.5
        self.lease_ms = promise_ms(self.n, tubes_of(self.n).voter_state)
        lease = f" lease {self.lease_ms}"
        return text + f"vars life {self.life} number {self.number}{lease}{keys}\n"

    # ---- time

    def next_ms(self) -> i64:
        """The instant at which `tick` next has work."""
        if len(self.by_id) == 0 and len(self.meetings.going) == 0 and not self.duplicate_id.where:
            return (1 << 62) - 1
        return self.beat_ms if self.own_flags() == self.said_flags else self.n.now_ms

    def beat_every_ms(self) -> i64:
        """[K4] Time between heartbeats, in ms: none is late for a linked node (K4.1)."""
        shortest_ms = self.timeout_ms
        for one in self.by_id.values():
            if one.is_linked and 0 < one.timeout_ms < shortest_ms:
                shortest_ms = one.timeout_ms
        every_ms = shortest_ms // 10
        if every_ms < BEAT_MIN_MS:
            return BEAT_MIN_MS
        return every_ms if every_ms < BEAT_MAX_MS else BEAT_MAX_MS

    def tick(self, now_ms: i64) -> list[tuple[str, int]]:
        """[K4] Send heartbeats, suspect silent nodes; returns the addresses to dial now."""
        flags = self.own_flags()
        if now_ms < self.beat_ms and flags == self.said_flags:
            return []
        self.said_flags = flags  # a change is sent at once
        self.beat_ms = now_ms + self.beat_every_ms()
        begin_round(self.n)
        gossip = self.gossip()
        for one in self.alive():
            if one.duplicate_ms != 0 and now_ms - one.duplicate_ms > self.timeout_ms // 2:
                one.duplicate_ms = 0  # K1.3
                self.reach(one)
            if one.is_linked:
                self.look_at(one, now_ms)
                news = gossip if one.duplicate_ms == 0 else gossip_of_duplicate(one, gossip)  # K1.3
                beat = self.heartbeat(one, flags, news)
                if say(self.n, one.slot, beat):
                    self.sent += 1
                    if one.said_ms == 0:
                        one.said_ms = now_ms
            elif now_ms - one.heard_ms > self.timeout_ms:
                self.suspect(one, now_ms)
        if self.duplicate_id.is_over(now_ms):
            self.work_or_not()
        if self.lease_ms != promise_ms(self.n, tubes_of(self.n).voter_state):
            self.is_changed = True  # T25.5
        return self.to_dial(now_ms)

    def heartbeat(self, one: Member, flags: i64, news: list[Gossip]) -> Heartbeat:
        """The next heartbeat for that node."""
        return Heartbeat(self.n.round, one.round, flags, self.port, news, int(self.timeout_ms))

    def own_flags(self) -> i64:
        """This node's flags in heartbeats."""
        flags: i64 = 0
        if self.n.is_leaving:
            flags |= LEAVING
        if self.n.is_loading:
            flags |= LOADING
        if journal_fails(self.n, 0):
            flags |= FAILING
        return flags

    def gossip(self) -> list[Gossip]:
        """The gossip of a heartbeat: all nodes if they are few, else a part."""
        told: list[Gossip] = []
        members = list(self.by_id.values())
        count: i64 = len(members)
        if count > GOSSIP_ALL:
            start = self.turn % count
            self.turn += GOSSIP_ALL
            members = (members + members)[start : start + GOSSIP_ALL]
        for one in members:
            told.append(
                Gossip(one.node_id, one.host, one.port, one.bus_port, one.flags(), one.number)
            )
        return told

    def look_at(self, one: Member, now_ms: i64) -> None:
        """[K4] Suspect a silent linked node; close its link if it stays silent."""
        silent_ms = now_ms - one.heard_ms
        if silent_ms >= LATE_MS and not one.is_late:
            one.is_late = True
            self.reach(one)
        if silent_ms > self.timeout_ms:
            self.suspect(one, now_ms)
        if silent_ms > 2 * self.timeout_ms:
            self.stale.append(one.slot)

    def suspect(self, one: Member, now_ms: i64) -> None:
        """[K4] The node does not answer; if most nodes suspect it, it has failed (K4.1)."""
        if not one.is_suspected:
            one.is_suspected = True
            self.reach(one)
        fresh: i64 = 1
        for since_ms in one.reports.values():
            if now_ms - since_ms < 2 * self.timeout_ms:
                fresh += 1
        if fresh * 2 > self.size() and not one.is_failed:
            one.is_failed = True
            self.is_changed = True

    def to_dial(self, now_ms: i64) -> list[tuple[str, int]]:
        """[K3] The addresses to dial: nodes without a link (K3.2) and meetings."""
        found: list[tuple[str, int]] = []
        for one in self.alive():
            if one.is_linked or not one.host or one.bus_port == 0 or now_ms < one.dial_ms:
                continue
            one.dial_ms = now_ms + one.backoff_ms
            one.backoff_ms = self.duplicate_id.dial_again_ms(one.backoff_ms * 2)
            found.append((one.host, one.bus_port))
        found += self.meetings.to_dial(now_ms)
        return found

    # ---- links

    def on_joined(
        self,
        node_id: bytes,
        life: i64,
        mark: bytes,
        is_empty: bool,
        host: str,
        port: i64,
        bus_port: i64,
        is_dialer: bool,
        dialed: tuple[str, int],
        is_meeting: bool,
    ) -> i64:
        """[K1] A node has proved that it knows the secret. Returns its slot; raises Refused."""
        if node_id == self.n.node_id:
            self.on_own_id(life, mark, shown(host, port))
        now_ms = self.n.now_ms
        was_met = is_meeting or (is_dialer and self.meetings.has(dialed[0], dialed[1]))
        if node_id in self.left_behind:
            if not was_met:
                raise Refused("this node was reset; CLUSTER MEET makes it a member again")
            del self.left_behind[node_id]
        one = self.by_id.get(node_id)
        if one is None:
            one = self.add(node_id)
        if one.is_forgotten():
            if not was_met or not is_empty or (one.life == life and one.mark == mark):
                raise Refused(
                    "it was forgotten and may have jobs of before: "
                    "start it without them, or CLUSTER RESET it, and CLUSTER MEET it again",
                    removal=int(one.number),
                )
            self.set_number(one, one.number + 1)  # K6.3
        check_life(one, life, mark, (host, port, bus_port), now_ms, self.timeout_ms)
        self.meetings.end(host, bus_port)
        self.meetings.end(dialed[0], dialed[1])
        by_lower = (self.n.node_id < node_id) == is_dialer
        is_same = one.life == life and one.mark == mark
        if one.is_linked and is_same and one.by_lower and not by_lower:
            if now_ms - one.heard_ms <= self.timeout_ms:
                raise Refused("there is a link already")
        one.life = life  # K1.2
        one.mark = mark
        on_incarnation(self.n, one.slot, is_empty, life_number(life, mark))
        one.by_lower = by_lower
        if one.host != host or one.port != port or one.bus_port != bus_port:
            one.host, one.port, one.bus_port = host, port, bus_port
        self.is_changed = True
        return one.slot

    def on_own_number(self, number: i64) -> None:
        """[K6] This node was forgotten, or is a member again, as others say (K6.4)."""
        if number <= self.number:
            return
        self.number = number
        self.is_changed = True
        if number % 2 == 0:
            set_leaving(self.n, False)  # K7.8
        self.work_or_not()

    def known_at(self, host: str, bus_port: i64) -> list[bytes]:
        """[K1] The members with that address (K1.4)."""
        found: list[bytes] = []
        for one in self.alive():
            if one.host == host and one.bus_port == bus_port:
                found.append(one.node_id)
        return found

    def check_wanted(self, wanted: list[bytes]) -> None:
        """[K1] Raise Refused if the dialling node wants others at this address (K1.4)."""
        if len(wanted) == 0 or self.n.node_id in wanted:
            return
        if len(self.alive()) == 0 and not self.is_unmet:
            self.is_unmet = True
            self.work_or_not()
        raise Refused(f"{self.n.node_id.decode()} is there now: CLUSTER MEET makes it a member")

    def on_own_id(self, life: i64, mark: bytes, address: str) -> None:
        """[K1] Refuse a node that uses this node's id (K1.3)."""
        if life == self.life and mark == self.mark:
            raise Refused("that is this node itself")
        if life >= self.life:
            self.on_duplicate_id(address, self.timeout_ms)
        where = shown("", self.port) if life <= self.life else ""
        raise Refused("another node has the id of this one", where)

    def is_member(self, node_id: bytes) -> bool:
        """Whether the node belongs to the cluster, or did when it was forgotten (K6.3)."""
        return node_id in self.by_id or node_id == self.n.node_id

    def is_reached(self, address: str, bus_port: i64) -> bool:
        """Whether the node at that address is linked (K3.1)."""
        for one in self.alive():
            if one.is_linked and one.host == address and one.bus_port == bus_port:
                return True
        return False

    def add(self, node_id: bytes) -> Member:
        """Add an unknown node. Raises Refused if there are too many."""
        try:
            slot = slot_for(self.n, node_id)
        except TooManyNodes as error:
            raise Refused(str(error)) from None
        one = Member(node_id, slot, self.n.now_ms)
        if self.n.node_id > node_id:
            one.dial_ms += SECOND_DIALER_MS
        self.by_id[node_id] = one
        self.by_slot[slot] = one
        if self.is_unmet:
            self.is_unmet = False
            self.work_or_not()
        self.count_others()
        self.reach(one)
        self.beat_ms = min(self.beat_ms, self.n.now_ms)
        self.is_changed = True
        return one

    def on_linked(self, slot: i64) -> None:
        """The link to the node is up."""
        one = self.by_slot[slot]
        one.is_linked = True
        one.has_rival = False
        one.heard_ms = self.n.now_ms
        one.said_ms = 0
        one.round = 0
        one.is_suspected = False
        one.is_failed = False
        one.is_late = False
        one.linked_ms = self.n.now_ms
        on_link_up(self.n, slot, one.is_reachable())
        self.reach(one)
        self.beat_ms = min(self.beat_ms, self.n.now_ms)

    def on_unlinked(self, slot: i64) -> None:
        """The link to the node is down."""
        one = self.by_slot.get(slot)
        if one is not None:
            one.is_linked = False
            one.dial_ms = self.n.now_ms
            if self.n.now_ms - one.linked_ms >= STEADY_MS:
                one.backoff_ms = DIAL_MIN_MS
            else:
                one.dial_ms += one.backoff_ms  # K3.2: it would fail again at once
            if self.n.node_id > one.node_id:
                one.dial_ms += SECOND_DIALER_MS
        on_link_down(self.n, slot)
        self.beat_ms = min(self.beat_ms, self.n.now_ms)

    # ---- heartbeats

    def on_heartbeat(self, slot: i64, m: Heartbeat) -> None:
        """[K4] ON RECV HEARTBEAT: the node is alive; handle its gossip."""
        one = self.by_slot.get(slot)
        if one is None:
            return
        self.received += 1
        now_ms = self.n.now_ms
        set_failing(self.n, slot, m.flags & FAILING != 0)
        if m.round == 0:  # K4.5
            if one.round == 0:
                self.suspect(one, now_ms)
            return
        one.hear(m, now_ms)
        if one.has_rival:  # K1.3
            one.has_rival = False
            one.duplicate_ms = now_ms
        if m.echo <= self.n.round:
            self.n.peers[slot].echoed_round = m.echo
        self.n.peers[slot].is_leaving = one.is_leaving
        if m.port > 0 and m.port != one.port:
            one.port = m.port
            self.is_changed = True
        self.reach(one)
        for told in m.nodes:
            self.on_gossip(one, told, now_ms)

    def on_gossip(self, by: Member, told: Gossip, now_ms: i64) -> None:
        """Handle gossip about one node (K3.2, K4.1, K6.1)."""
        if len(told.node_id) != 40 or told.removal < 0 or len(told.host) > HOST_MAX:
            return
        if told.node_id == self.n.node_id:
            self.on_own_number(told.removal)
            if told.flags & TWINS:
                self.on_duplicate_id(shown(told.host, told.port), self.timeout_ms // 2)
            return
        one = self.by_id.get(told.node_id)
        if one is None:
            if told.removal % 2 == 1 or not told.host:
                return
            try:
                one = self.add(told.node_id)
            except Refused:
                return
            self.left_behind.pop(told.node_id, None)  # K6.3: `by` was met since
            one.host, one.port, one.bus_port = told.host, told.port, told.bus_port
            one.number = told.removal
            self.count_others()
            return
        if told.removal > one.number:
            self.set_number(one, told.removal)
        if not one.is_linked and told.host and now_ms - one.heard_ms > self.timeout_ms:
            one.host, one.port, one.bus_port = told.host, told.port, told.bus_port
        if told.flags & (SUSPECTED | FAILED):
            one.reports[by.node_id] = now_ms
            if not one.is_linked:
                on_away(self.n, one.slot)  # Q11.2
            if one.is_suspected:
                self.suspect(one, now_ms)
        else:
            one.reports.pop(by.node_id, None)

    def set_number(self, one: Member, number: i64) -> None:
        """[K6] Apply a removal, or its end, with a new number (K6.1)."""
        was_forgotten = one.is_forgotten()
        one.number = number
        self.is_changed = True
        self.count_others()
        if one.is_forgotten() and not was_forgotten:
            if one.is_linked:
                self.stale.append(one.slot)
            self.reach(one)
            on_forget(self.n, one.slot)  # K6.2
            on_reach_changed(self.n)
        elif was_forgotten and not one.is_forgotten():
            self.n.forgotten &= ~(1 << one.slot)
            one.heard_ms = self.n.now_ms
            one.dial_ms = self.n.now_ms
            self.reach(one)

    def reach(self, one: Member) -> None:
        """Update whether the core can give the node copies, or at least ask it."""
        is_reachable, is_leaver = one.is_reachable(), one.can_answer() and one.is_leaving
        is_expected = one.is_expected()  # K4.4
        was_reachable = self.n.reachable >> one.slot & 1 != 0
        was_leaver = self.n.leavers >> one.slot & 1 != 0
        was_expected = self.n.expected >> one.slot & 1 != 0
        was_late = self.n.late >> one.slot & 1 != 0
        is_late = is_reachable and one.is_late  # K4.3
        is_changed = was_reachable != is_reachable or was_late != is_late
        if is_changed or was_leaver != is_leaver or was_expected != is_expected:
            set_reachable(self.n, one.slot, is_reachable, is_late)
            set_leaver(self.n, one.slot, is_leaver)
            set_expected(self.n, one.slot, is_expected)
            on_reach_changed(self.n)

    def on_duplicate_id(self, where: str, span_ms: i64) -> None:
        """[K1] Another node, at that address, uses this node's id: stop serving (K1.3)."""
        if self.duplicate_id.begin(where, self.n.now_ms + span_ms):
            self.work_or_not()
            for one in self.alive():
                one.backoff_ms = DIAL_MIN_MS

    def work_or_not(self) -> None:
        """Tell the core and the tubes whether this node may serve."""
        self.n.is_double = len(self.why_idle()) > 0
        look_again(self.n)
        self.beat_ms = min(self.beat_ms, self.n.now_ms)
        tubes_of(self.n).on_reach(self.n)

    def why_idle(self) -> str:
        """Why this node does no work, in a word of CLUSTER INFO (S6.5); empty: it does."""
        if self.number % 2 == 1:
            return FORGOTTEN
        if self.duplicate_id.where:
            return "conflict"
        return UNMET if self.is_unmet else ""
