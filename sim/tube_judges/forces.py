"""What CLUSTER VOTERS FORCE allows: what only the dead had is lost (SPEC T28.8).

The operator says that all other voters are dead. One that comes back uses its old list until it
learns of the new one: until then he lets no client go there, and no judge looks at its tubes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.tube_judges.disk import ident_of, tubes_on
from tuque.tubes.log.vote_state import best_copy

if TYPE_CHECKING:
    from sim.machines.machine import Machine
    from sim.runs.cluster import Cluster
    from sim.tube_judges.facts import Line
    from tuque.tubes.model.voter_state import Voters


def voters_of(m: Machine) -> Voters | None:
    """The list that a node uses."""
    t = tubes_on(m.shell.n) if m.shell is not None and not m.shell.s.is_loading else None
    return t.voter_state.in_force() if t is not None else None


def is_outdated(m: Machine) -> bool:
    """Whether the node does not know yet of the last list by force."""
    if m.cluster.forced_number == 0:
        return False
    voters = voters_of(m)
    return voters is None or voters.number < m.cluster.forced_number


class Force:
    """One FORCE: what the nodes that are here have when it is sent is not lost."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kept: list[tuple[Line, tuple[int, int]]] = []
        for facts in cluster.tubing.facts.values():
            tubes = [(facts.lines.get(ident_of(one)), one) for one in self.tubes(facts.key)]
            for line in facts.lines.values():
                copies = [best_copy(tube) for at, tube in tubes if at is line]
                epoch, seq = max(copies, default=(0, 0))
                self.kept.append((line, (int(epoch), int(seq))))

    def tubes(self, key: bytes) -> list[Any]:
        """The tube on all nodes that are up."""
        found = [tubes_on(m.shell.n) for m in self.cluster.machines if m.shell is not None]
        return [t.by_name[key] for t in found if t is not None and key in t.by_name]

    def is_done(self, at: Machine) -> None:
        """The list is made: clients may have lost what came after."""
        voters = voters_of(at)
        if voters is not None:
            self.cluster.forced_number = max(self.cluster.forced_number, int(voters.number))
        alive = list(self.cluster.tubing.mirrors.values())
        for line, (epoch, seq) in self.kept:
            mirror = line.mirror
            if mirror is None or mirror in alive:
                continue
            before = len(mirror.told)
            least = mirror.steps_by(seq) if epoch >= mirror.epoch else 0
            mirror.told = [told for told in mirror.told if told[1] < least]
            self.cluster.history.count("told to clients, lost by force", before - len(mirror.told))
            self.cluster.history.count("told to clients, kept by force", len(mirror.told))
