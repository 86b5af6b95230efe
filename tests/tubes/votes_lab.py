"""Nodes that vote about the leaders of their tubes (SPEC T23 to T27)."""

from __future__ import annotations

from homes_lab import HomesLab

from cluster_lab import Kept
from tuque.core.msgs import AnyMessage, VoteAt
from tuque.core.node.node import Node
from tuque.core.node.peers import say
from tuque.tubes.election.candidate import vote_at
from tuque.tubes.election.votes import send_due
from tuque.tubes.leadership.create import claim_tube
from tuque.tubes.log.leader import synced
from tuque.tubes.log.vote_state import seat_of
from tuque.tubes.model.options import TubeOptions
from tuque.tubes.model.tube import Seat, Tube
from tuque.tubes.model.voter_state import IN_FORCE
from tuque.tubes.policy import tubes_of

TIMEOUT_MS = 5_000


class VotesLab(HomesLab):
    """A lab with `tube-failover yes` on all nodes, and one tube that a majority has."""

    def __init__(
        self, count: int = 3, makes: bool = True, slow: int = -1, off: int = -1, old: int = -1
    ) -> None:
        self.slow_first = slow  # its disk is slow
        self.off = off  # it has `tube-failover no`
        self.old = old  # it does not know the messages of votes
        super().__init__(count, has_journal=True)
        if makes:
            self.live(2 * TIMEOUT_MS)
            assert all(self.in_force(i) for i in range(count))
            self.make(0, sync=count // 2 + 1)
            self.live(1_000)
            assert self.runs_at() == [0]

    def born(self, i: int) -> Node:
        """A node that takes part."""
        n = super().born(i)
        if i == self.slow_first:
            self.slow.add(i)
        tubes_of(n).ballots.is_on = i != self.off
        return n

    def settle(self, i: int) -> None:
        """End of a turn."""
        super().settle(i)
        if self.old not in (i, -1):
            self.t(i).ballots.able &= ~(1 << self.slot(i, self.old))

    def in_force(self, i: int) -> bool:
        """Whether node i goes by a list of voters."""
        voters = self.t(i).ballots.voters
        return voters is not None and voters.step == IN_FORCE

    def seat(self, i: int) -> Seat:
        """Where node i stands."""
        return seat_of(self.tube(i))

    def vote_at(self, i: int, epoch: int) -> VoteAt:
        """What node i would say of the tube when it asks for votes."""
        return vote_at(self.tube(i), epoch)

    def send(self, a: int, b: int, message: AnyMessage) -> None:
        """Let node a send a message to node b, and carry what follows, without timers."""
        for n in self.nodes:
            n.now_ms = self.now_ms
        say(self.nodes[a], self.slot(a, b), message)
        for _ in range(4):
            self.carry()
            for n in self.nodes:
                send_due(n, tubes_of(n))

    def lose_journal(self, i: int) -> None:
        """Node i starts without its journal."""
        self.journals[i] = Kept(i)
        self.die(i)
        self.revive(i)

    def create(self, i: int, name: bytes, sync: int) -> Tube | None:
        """CREATE at node i; None: the answer comes later."""
        o = TubeOptions()
        o.sync = sync
        return claim_tube(self.nodes[i], self.t(i), name, b"fifo", o, b"user", 1, 1)

    def watch(self, span_ms: int) -> list[int]:
        """Let time pass in small steps; where the tube runs then. It never runs twice."""
        for _ in range(span_ms // 250):
            self.live(250)
            self.runs_at()
        return self.runs_at()

    def answered(self, i: int) -> int:
        """The last change that would be answered at node i (T18.5)."""
        tube: Tube = self.tube(i)
        return int(synced(self.nodes[i], self.t(i), tube))
