"""Flaws in tubes, enabled by switches.py, to show that the judges see them."""

from __future__ import annotations

from typing import Any, Final

from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch, everywhere
from tuque.core.model.task import DELAYED, TAKEN, Task
from tuque.core.node.node import Node
from tuque.core.node.queue import PAUSE_OUT
from tuque.core.queues import deliver
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import Session, Tubes
from tuque.tubes.tasks import operations, sessions
from tuque.tubes.types import driver, utube
from tuque.tubes.work import transitions


def ttr_is_halved() -> list[Patch]:
    """A task is READY again before its ttr ends."""
    sound = transitions.return_ms

    def return_ms(n: Node, tube: Tube, task: Task) -> int:
        at_ms = sound(n, tube, task)
        return n.now_ms + (at_ms - n.now_ms) // 2 if at_ms else 0

    return everywhere(sound, return_ms)


def fence_is_open() -> list[Patch]:
    """A former holder of a task may finish it, whoever holds it now."""
    sound = operations.own

    def own(n: Node, t: Tubes, tube: Tube, client: int, number: int, token: int) -> Task:
        task = tube.tasks.get(number)
        if task is not None and task.status == TAKEN:
            return task
        return sound(n, t, tube, client, number, token)

    return everywhere(sound, own)


def lanes_are_open() -> list[Patch]:
    """A second task of a sub-queue is delivered while the first one is TAKEN."""

    def first(self: utube.UTube) -> Task | None:
        for lane in self.lanes.values():
            if lane.count > 0:
                self.last = lane
                return lane.first()
        return None

    return [(utube.UTube, "first", first)]


def nobody_is_woken() -> list[Patch]:
    """Waiting clients are not woken for a new task."""

    def mark_ready(n: Node, q: object) -> None:
        return

    return [(transitions, "mark_ready", mark_ready)]


def numbers_come_again() -> list[Patch]:
    """The next number is one above the existing ones, as in the original."""
    sound = transitions.insert

    def insert(n: Node, t: Tubes, tube: Tube, *rest: Any) -> Task:
        tube.next_number = max(tube.tasks, default=-1) + 1
        return sound(n, t, tube, *rest)

    return everywhere(sound, insert)


def last_is_first() -> list[Patch]:
    """The task that comes last in the order of pri and number goes first."""
    sound = driver.is_before

    def is_before(a: Task, b: Task) -> bool:
        return sound(b, a)

    return everywhere(sound, is_before)


def room_is_not_looked_at() -> list[Patch]:
    """All waiting puts run as soon as there is room for one."""

    def admit(n: Node, t: Tubes, tube: Tube) -> None:
        while tube.putters:
            putter = tube.putters.popleft()
            if not putter.is_over:
                transitions.insert(n, t, tube, putter.body, putter.form, putter.spec)
                t.end_put(tube, putter)

    return everywhere(transitions.admit, admit)


def ends_are_not_told() -> list[Patch]:
    """Acks are not recorded."""
    sound = transitions.end

    def end(n: Node, t: Tubes, tube: Tube, task: Task, cause: int, event: int) -> None:
        records = n.records
        n.records = None
        sound(n, t, tube, task, cause, event)
        n.records = records

    return everywhere(sound, end)


def nothing_binds() -> list[Patch]:
    """Replies to bury and release do not wait for the disk."""
    sound = transitions.record

    def record(n: Node, tube: Tube, task: Task, binds: bool = True) -> None:
        sound(n, tube, task, False)

    return everywhere(sound, record)


def sessions_end_at_once() -> list[Patch]:
    """A session ends with its last connection, whatever its ttr."""
    sound = sessions.leave

    def leave(n: Node, t: Tubes, client: int) -> None:
        session: Session | None = t.by_client.get(client)
        sound(n, t, client)
        if session is not None and not session.clients and session.number in t.sessions:
            sessions.end_session(n, t, session)

    return everywhere(sound, leave)


def delays_are_halved() -> list[Patch]:
    """A delayed task comes too early."""
    sound = transitions.arm

    def arm(n: Node, t: Tubes, task: Task, at_ms: int) -> None:
        if task.status == DELAYED and at_ms > n.now_ms:
            at_ms = n.now_ms + (at_ms - n.now_ms) // 2
        sound(n, t, task, at_ms)

    return everywhere(sound, arm)


def tokens_are_not_reserved() -> list[Patch]:
    """Tokens in use are not recorded."""
    sound = transitions.reserve_tokens

    def reserve_tokens(n: Node, t: Tubes) -> None:
        t.token_reserved = t.token + transitions.TOKEN_RESERVE

    return everywhere(sound, reserve_tokens)


def last_ones_are_served_first() -> list[Patch]:
    """The client that began to wait last is served first."""

    def serve_last(n: Node, q: Any) -> None:
        while q.length > 0 and len(q.waiters) > 0 and q.pause & PAUSE_OUT == 0:
            if not deliver.serve(n, n.waiters[list(q.waiters)[-1]]):
                return

    def serve_ready(n: Node) -> None:
        while n.ready:
            q = n.ready.pop(0)
            q.is_ready = False
            serve_last(n, q)

    return everywhere(deliver.serve_ready, serve_ready) + everywhere(
        operations.hand_over, serve_last
    )


def last_puts_are_done_first() -> list[Patch]:
    """Of waiting puts the last one runs first."""
    sound = transitions.admit

    def admit(n: Node, t: Tubes, tube: Tube) -> None:
        tube.putters.reverse()
        sound(n, t, tube)
        tube.putters.reverse()

    return everywhere(sound, admit)


def puts_go_in_paused() -> list[Patch]:
    """A waiting put runs as soon as there is room, even if the tube is paused."""
    return [(transitions, "PAUSE_IN", 0)]


# ---- plans that reveal them


def one_tube(seed: int, type: str = "fifottl", **options: Any) -> Plan:
    """One node with a tube: hungry and slow workers, some that return to old tasks."""
    plan = Plan(seed=f"tube {type} {seed}", nodes=1, chaos_ms=12_000)
    plan.ops.append(Op(0, "tube", {"tube": "t0", "type": type, "node": 0, **options}))
    shared: dict[str, Any] = {"tube": "t0", "node": 0, "for_ms": 11_000}
    habits: dict[str, Any] = {
        "many": 3, "work_ms": 800, "idle_ms": 20, "timeout": 1_000, "p_release": 0.2,
        "p_bury": 0.1, "p_touch": 0.1, "p_twice": 0.3, "p_keep": 0.1, "p_identify": 1.0,
        **shared,
    }  # fmt: skip
    for i in range(2):
        plan.ops.append(Op(10 + i, "tube_producer", {
            "client": f"p{i}", "pri": [0, 3, 9], "utube": ["a", "b"], "ttr": [300, 3_000],
            "delay": [None, None, 600], "p_wait": 0.8, "idle_ms": 300, **shared,
        }))  # fmt: skip
    for i in range(3):
        plan.ops.append(Op(100, "tube_worker", {
            "client": f"w{i}", "p_crash": 0.03 if i else 0.0, **habits,
        }))  # fmt: skip
    plan.ops.append(Op(50, "tube_meddler", {
        "client": "m", "verbs": ["KICK", "PEEK", "CFG"], "idle_ms": 1_000, **shared,
    }))  # fmt: skip
    plan.ops.append(Op(60, "add", {
        "client": "j", "node": 0, "queue": "q", "retry": 5, "ttl": 120, "repl": 1,
    }))  # fmt: skip
    return plan


def keyed(seed: int) -> Plan:
    """A tube with sub-queues."""
    return one_tube(seed, ["utube", "utubettl"][seed % 2])


def small(seed: int) -> Plan:
    """A tube with a capacity."""
    return one_tube(seed, "limfifottl", capacity=3)


def small_and_paused(seed: int) -> Plan:
    """A tube with a capacity that is sometimes paused while puts wait for room."""
    plan = small(seed)
    plan.seed = f"small and paused {seed}"
    plan.ops.append(Op(600, "tube_pauser", {
        "client": "z", "tube": "t0", "node": 0, "for_ms": 11_000, "idle_ms": 500, "hold_ms": 1_500,
    }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def powerless(seed: int) -> Plan:
    """A tube whose node loses power again and again; its disk is slow."""
    plan = one_tube(seed)
    plan.seed, plan.policy, plan.sync_us = f"tube and power {seed}", "always", 60_000
    plan.faults, plan.is_faultless = ["power"], False
    for i in range(10):
        plan.ops.append(Op(1_000 + 1_037 * i, "crash", {
            "node": 0, "how": "power", "back": "disk", "fuse": 0, "down_ms": 50,
        }))  # fmt: skip
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


TUBE_FLAWS: Final = [
    Flaw("t1", "a task is READY before its ttr", ttr_is_halved, 5, one_tube),
    Flaw("t2", "an ack needs no take", fence_is_open, 10, one_tube),
    Flaw("t3", "a sub-queue has two TAKEN tasks", lanes_are_open, 5, keyed),
    Flaw("t4", "waiting clients are not woken", nobody_is_woken, 5, one_tube),
    Flaw("t5", "numbers are reused", numbers_come_again, 5, one_tube),
    Flaw("t6", "the order of tasks is lost", last_is_first, 5, one_tube),
    Flaw("t7", "a full tube takes puts", room_is_not_looked_at, 10, small),
    Flaw("t8", "acks are not in the journal", ends_are_not_told, 10, powerless),
    Flaw("t9", "replies do not wait for the disk", nothing_binds, 20, powerless),
    Flaw("t10", "sessions end early", sessions_end_at_once, 10, one_tube),
    Flaw("t11", "delays are cut short", delays_are_halved, 5, one_tube),
    Flaw("t18", "tokens in use are not recorded", tokens_are_not_reserved, 5, powerless),
    Flaw("t21", "takes that wait last are served first", last_ones_are_served_first, 10, one_tube),
    Flaw("t22", "puts that wait last are done first", last_puts_are_done_first, 10, small),
    Flaw("t23", "puts that wait go into a paused tube", puts_go_in_paused, 10, small_and_paused),
]
TUBE_RULES: Final = {
    "t1": "tube-time", "t2": "tube-fence", "t3": "tube-held", "t4": "tube-wait",
    "t5": "tube-number", "t6": "tube-order", "t7": "tube-full", "t8": "tube-disk",
    "t9": "tube-disk", "t10": "tube-session", "t11": "tube-time",
    "t18": "tube-fence", "t21": "tube-turn", "t22": "tube-turn", "t23": "tube-pause",
}  # fmt: skip
