"""What must hold in the model of leadership, whatever happens (SPEC, invariants of tubes)."""

from __future__ import annotations

from spec.model.leases import Cluster, is_running
from spec.model.state import LEADS, BrokenError, Copy, Entry, Key, Node


class Judge:
    """It sees all nodes at once, and what really happened."""

    def __init__(self, w: Cluster) -> None:
        self.w = w
        self.won: dict[Key, dict[int, int]] = {}  # epoch: its leader
        self.ruled: dict[Key, tuple[int, int]] = {}  # epoch, family that elected its leader
        self.answered: dict[Key, set[Entry]] = {}
        self.first: dict[Key, Entry] = {}  # what CREATE made
        self.elections = 0
        w.on_won = self.on_won
        w.on_answered = self.on_answered

    def on_won(self, x: Node, copy: Copy) -> None:
        """A majority voted: no other node won that epoch, and nothing answered is missing."""
        won = self.won.setdefault(copy.key, {})
        self.elections += 1
        if won.get(copy.copy, x.id) != x.id:
            raise BrokenError(f"{won[copy.copy]} and {x.id} both won epoch {copy.copy}")
        won[copy.copy] = x.id
        if copy.copy < max(won):
            return
        self.ruled[copy.key] = (copy.copy, copy.family)
        missing = self.answered.get(copy.key, set()).difference(copy.log)
        if missing:
            raise BrokenError(f"leader {x.id} of epoch {copy.copy} lacks {sorted(missing)}")
        for key, (_, family) in self.ruled.items():
            if key[0] == copy.key[0] and key != copy.key and family == copy.family:
                raise BrokenError(f"two tubes {key} {copy.key} of one name in one list")

    def on_answered(self, x: Node, copy: Copy, new: tuple[Entry, ...]) -> None:
        """A client has its answer: the newest leader has the change."""
        answered = self.answered.setdefault(copy.key, set())
        answered.update(new)
        if self.first.setdefault(copy.key, copy.log[0]) != copy.log[0]:
            raise BrokenError(f"tube {copy.key} was created twice")
        won = self.won[copy.key]
        top = self.w.nodes[won[max(won)]]
        view = top.views.get(copy.key)
        leads = top.is_up and view is not None and view.role == LEADS  # else by FORCE it is dead
        if max(won) > copy.copy and leads and view is not None:
            if view.epoch == max(won) and not answered.issubset(top.disk.tubes[copy.key].log):
                raise BrokenError(f"{x.id} answers in epoch {copy.copy} after {max(won)} began")

    def check(self) -> None:
        """No two nodes lead one tube at one instant (T25.2)."""
        found: dict[Key, int] = {}
        for x in self.w.nodes:
            if not x.is_up or x.is_paused:
                continue
            for key, view in x.views.items():
                if view.role == LEADS and is_running(self.w, x, x.disk.tubes[key]):
                    if key in found:
                        raise BrokenError(f"nodes {found[key]} and {x.id} both lead tube {key}")
                    found[key] = x.id

    def forced(self, named: list[Node], family: int) -> None:
        """[T28] What only the dead had is lost by the word of the operator (T28.8)."""
        for key, (_, of) in list(self.ruled.items()):
            if of != family:
                continue
            copies = [x.disk.tubes[key] for x in named if key in x.disk.tubes]
            log = max(copies, key=Copy.newest).log if copies else ()
            self.kept(key, log)
            if not log or all(copy.family != family for copy in copies):
                del self.ruled[key]  # nobody named knows that these lists chose its leader

    def kept(self, key: Key, log: tuple[Entry, ...]) -> None:
        """[T21] Of a tube that was forced only this is left."""
        self.answered.setdefault(key, set()).intersection_update(log)
        self.first.pop(key, None)

    def dropped(self, key: Key) -> None:
        """An operator drops the tube."""
        self.won.pop(key, None)
        self.ruled.pop(key, None)
        self.answered.pop(key, None)
        self.first.pop(key, None)
