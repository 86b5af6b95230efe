"""Flaws in the leadership of tubes, enabled by switches.py (SPEC T17 to T21)."""

from __future__ import annotations

from typing import Any, Final

from sim.engine.plan import Op, Plan
from sim.flaws.switches import Flaw, Patch, everywhere
from tuque.core.model.task import FAR
from tuque.core.msgs.bus import TubeAt, TubePulse
from tuque.core.node import tables
from tuque.core.node.node import Node
from tuque.server.replies import waiting
from tuque.tubes.election import (
    candidate,
    disk_epoch,
    lease,
    votes,
)
from tuque.tubes.leadership import activate, catalog_in, switchover
from tuque.tubes.log import leader, send, vote_state
from tuque.tubes.log.send import record_leader
from tuque.tubes.log.vote_state import vote_of
from tuque.tubes.model.tube import Move, Tube
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import (
    BETTER,
    OLD_EPOCH,
    YES,
    Voters,
)
from tuque.tubes.tasks import operations


def leases_never_end() -> list[Patch]:
    """A leader without a majority continues."""

    def renew_lease(n: Node, t: Tubes) -> None:
        t.round, t.lease_ms = n.round, FAR

    return everywhere(leader.renew_lease, renew_lease)


def standstills_are_not_noticed() -> list[Patch]:
    """A process that stood still acts on what it knew before."""

    def unnoticed(n: Node, now_ms: int) -> bool:
        return False

    return everywhere(tables.has_stood, unnoticed)


def force_does_not_wait() -> list[Patch]:
    """A forced leader runs at once, even if the former one may still live."""

    def may_run_forced(n: Node, tube: Tube) -> bool:
        return True

    return everywhere(switchover.may_run_forced, may_run_forced)


def disk_is_not_awaited() -> list[Patch]:
    """The next epoch is sent before it is on the disk: nothing waits for it."""

    def ask_sync(n: Node, t: Tubes, tube: Tube) -> None:
        if n.records is not None:
            record_leader(n.records, tube)
        tube.wish = 1
        t.pending.append(tube)
        t.must_look = True

    def is_granted(n: Node, t: Tubes, tube: Tube) -> bool:
        return True

    def reserve_changes(n: Node, tube: Tube) -> None:  # else this brings the epoch to the disk
        if n.records is not None:
            tube.seq_reserved = tube.seq + send.SEQ_RESERVE
            record_leader(n.records, tube)

    patches = everywhere(send.reserve_changes, reserve_changes)
    patches += everywhere(activate.is_granted, is_granted)
    return patches + everywhere(activate.ask_sync, ask_sync)


def numbers_do_not_jump() -> list[Patch]:
    """A forced leader continues with the number after the last one it knows."""
    return [(switchover, "NUMBER_GAP", 0)]


def copies_are_not_awaited() -> list[Patch]:
    """With SYNC, calls get their reply before other nodes have the change."""

    def take_lacking(s: Any, t: Tubes) -> list[tuple[bytes, int]]:
        t.to_sync = {}
        return []

    return everywhere(waiting.take_lacking, take_lacking)


def given_too_early() -> list[Patch]:
    """The leadership moves before the new leader has all tasks, and it accepts that."""
    sound, sound_step = switchover.on_yours, switchover.step_move

    def step_move(n: Node, t: Tubes, tube: Tube, move: Move) -> None:
        if move.is_given:
            sound_step(n, t, tube, move)
        else:
            switchover.give(n, t, tube, move)

    def on_yours(n: Node, t: Tubes, slot: int, m: Any) -> None:
        tube = t.by_name.get(m.name)
        if tube is not None and not tube.is_mine and m.epoch >= tube.epoch:
            tube.seq, tube.copy_epoch, tube.is_complete = m.seq, m.epoch - 1, True
        sound(n, t, slot, m)

    return everywhere(sound_step, step_move) + everywhere(sound, on_yours)


def pauses_stay_behind() -> list[Patch]:
    """Followers drop the pause that a leader reports: the next leader does not know it."""

    def renew_pause(n: Node, at: Any) -> None:
        return

    return everywhere(catalog_in.renew_pause, renew_pause)


def pauses_are_not_looked_at() -> list[Patch]:
    """A tube paused in output delivers tasks."""
    return [(operations, "PAUSE_OUT", 0)]


def votes_go_to_stale_copies() -> list[Patch]:
    """A voter does not compare copies, and nobody waits for a newer one."""
    sound = candidate.answer_to

    def answer_to(n: Node, t: Tubes, slot: int, m: Any, at: Any) -> int:
        answer = int(sound(n, t, slot, m, at))
        return YES if answer == BETTER else answer

    return everywhere(sound, answer_to)


def votes_are_given_twice() -> list[Patch]:
    """A voter votes for whoever asks, also a second time in one epoch."""
    sound = candidate.answer_to

    def answer_to(n: Node, t: Tubes, slot: int, m: Any, at: Any) -> int:
        answer = int(sound(n, t, slot, m, at))
        tube = t.by_name.get(at.name)
        if answer == OLD_EPOCH and tube is not None and at.epoch == vote_of(tube)[0]:
            return YES
        return answer

    return everywhere(sound, answer_to)


def votes_are_not_recorded() -> list[Patch]:
    """A vote is given before it is on the disk, and never gets there."""

    def record_vote(records: Any, tube: Tube) -> None:
        return

    return everywhere(vote_state.record_vote, record_vote)


def leases_outlast_promises() -> list[Patch]:
    """A leader goes by its own timeout, not by the shortest that a voter has."""
    sound = lease.lease_of

    def lease_of(n: Node, t: Tubes, voters: Any, standing: int) -> int:
        kept, t.voter_state.timeouts = t.voter_state.timeouts, {}
        until = int(sound(n, t, voters, standing))
        t.voter_state.timeouts = kept
        return until

    return everywhere(sound, lease_of)


def promises_are_broken() -> list[Patch]:
    """A voter votes for another node although its leader is not silent."""

    def may_turn(n: Node, t: Tubes, tube: Tube, node_id: bytes) -> bool:
        return not (tube.is_mine and tube.is_won and n.now_ms <= tube.lease_ms)

    return everywhere(candidate.may_turn, may_turn)


def promises_end_with_a_start() -> list[Patch]:
    """A voter that starts votes at once, though it may have promised before."""
    sound = votes.votes_loaded

    def votes_loaded(n: Node, t: Tubes) -> None:
        sound(n, t)
        t.voter_state.bound_ms = 0

    return everywhere(sound, votes_loaded)


def old_disks_are_trusted() -> list[Patch]:
    """A voter that does not ask whether its disk is an old one."""

    def hear_mark(n: Node, t: Tubes, voters: Voters, slot: int, m: TubePulse) -> None:
        t.voter_state.is_asking = False

    return everywhere(disk_epoch.hear_mark, hear_mark)


def votes_about_tubes() -> list[Patch]:
    """A node votes about each tube, and turns to another one of the name (T24.3)."""
    sound = catalog_in.on_conflict

    def on_conflict(n: Node, t: Tubes, slot: int, tube: Tube, at: TubeAt) -> None:
        if tube.is_mine or at.maker >= tube.maker or tube.is_confirmed or len(tube.copies) > 0:
            sound(n, t, slot, tube, at)
            return
        catalog_in.forget_tube(n, t, tube)
        catalog_in.follow(n, t, slot, at, b"")

    return everywhere(sound, on_conflict)


# ---- plans that reveal them


def two_makers(seed: int) -> Plan:
    """Two nodes that do not see each other make a tube of one name; a third one sees both."""
    plan = Plan(seed=f"two makers {seed}", nodes=3, chaos_ms=16_000, policy="always")
    plan.failover, plan.node_timeout_ms, plan.faults = True, 2_000, ["cut", "slow"]
    plan.ops.append(Op(0, "tube", {"tube": "t0", "type": "fifo", "node": 0, "sync": 2}))
    for i in (0, 1):
        shared = {"tube": "t0", "node": i, "for_ms": 8_000}
        producer = {"client": f"p{i}", "idle_ms": 120, **shared}
        plan.ops.append(Op(6_000 + 7 * (seed % 5) * i, "tube_producer", producer))
        slow = {"a": i, "b": 2, "extra_ms": 150 + 40 * i, "for_ms": 5_000}
        plan.ops.append(Op(5_600, "slow", slow))
    plan.ops.append(Op(2_500, "cut", {"a": [0], "b": [1], "for_ms": 8_000}))
    add = {"client": "j", "node": 2, "queue": "q", "retry": 5, "ttl": 120, "repl": 1}
    plan.ops.append(Op(60, "add", add))
    return order(plan)


def voted(seed: int, name: str) -> Plan:
    """A tube that two of three nodes have, whose leaders votes choose."""
    plan = three_homes(seed, sync=2)
    plan.seed, plan.failover, plan.node_timeout_ms = f"{name} {seed}", True, 1_000
    return plan


def lost_while_behind(seed: int) -> Plan:
    """The leader ends while one follower lacks changes."""
    plan = voted(seed, "lost while behind")
    plan.faults, late = ["slow", "kill"], 1 + seed % 2
    for a, b in ((0, late), (0, 3 - late)):
        extra_ms = 900 if b == late else 1
        plan.ops.append(Op(3_000, "slow", {"a": a, "b": b, "extra_ms": extra_ms, "for_ms": 1_200}))
    plan.ops.append(Op(4_100, "crash", {
        "node": 0, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 6_000,
    }))  # fmt: skip
    return order(plan)


def two_at_once(seed: int) -> Plan:
    """Four followers ask in vain, each at its own pace, until they see each other: two at once."""
    plan = three_homes(seed, 5, sync=3)
    plan.seed, plan.failover, plan.node_timeout_ms = f"two at once {seed}", True, 1_000
    plan.faults, plan.delay_us = ["kill", "cut"], 20_000
    for a in (1, 2, 3):
        apart = {"a": [a], "b": list(range(a + 1, 5)), "for_ms": 800}
        plan.ops.append(Op(4_600 + 20 * (seed % 10), "cut", apart))  # links outlast it
    plan.ops.append(Op(4_000, "crash", {
        "node": 0, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 5_000,
    }))  # fmt: skip
    return order(plan)


def voter_dies(seed: int) -> Plan:
    """A voter dies right after its vote, and the node that it voted for is cut off."""
    plan = voted(seed, "voter dies")
    plan.faults, plan.sync_us = ["kill", "cut"], 20_000
    plan.ops.append(Op(4_000, "crash", {
        "node": 0, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 1_700,
    }))  # fmt: skip
    plan.ops.append(Op(3_900, "tube_spoiler", {
        "client": "s", "tube": "t0", "node": 0, "for_ms": 6_000, "wait_us": 30_000,
        "cut_ms": 5_000, "down_ms": 100,
    }))  # fmt: skip
    return order(plan)


def unlike_timeouts(seed: int) -> Plan:
    """The leader has a longer timeout than its voters, and is cut off."""
    plan = voted(seed, "unlike timeouts")
    plan.faults, plan.timeouts_ms = ["cut", "break"], [5_000, 1_000, 1_000]
    plan.ops.append(Op(4_000 + seed, "cut", {"a": [0], "b": [1, 2], "for_ms": 6_000}))
    return order(plan)


def half_hidden(seed: int) -> Plan:
    """One follower does not see the leader, the other one does, over a slow line."""
    plan = voted(seed, "half hidden")
    plan.faults = ["cut", "slow"]
    for op in plan.ops:
        if op.kind in ("tube_producer", "tube_worker"):
            op.args["for_ms"] = 3_500  # else the other one's copy is newer
    hidden = 1 + seed % 2
    slow = {"a": 3 - hidden, "b": 0, "extra_ms": 200, "for_ms": 9_000}
    plan.ops.append(Op(3_000, "slow", slow))
    plan.ops.append(Op(4_000 + seed, "cut", {"a": [0], "b": [hidden], "for_ms": 6_000}))
    return order(plan)


def starts_and_votes(seed: int) -> Plan:
    """A voter restarts, and meets only the follower that does not see the leader.

    The cut comes first: a leader that sees the link break gives the promise up itself.
    """
    plan = voted(seed, "starts and votes")
    plan.faults = ["cut", "kill", "break"]
    hidden = 1 + seed % 2
    plan.ops.append(Op(4_000, "cut", {"a": [0], "b": [hidden], "for_ms": 6_000}))
    at_ms = 6_000 + 37 * (seed % 10)
    plan.ops.append(Op(at_ms, "crash", {
        "node": 3 - hidden, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 10,
    }))  # fmt: skip
    plan.ops.append(Op(at_ms - 1, "cut", {"a": [0], "b": [3 - hidden], "for_ms": 4_000}))
    return order(plan)


def old_disk(seed: int) -> Plan:
    """A voter comes back with a disk from before the last changes, and the leader goes."""
    seed += 4  # of the first ones none shows what it lacks
    plan = voted(seed, "old disk")
    plan.faults, old = ["cut", "kill", "old_disk"], 1 + seed % 2
    plan.ops.append(Op(2_500, "backup", {"node": old}))
    plan.ops.append(Op(2_600, "cut", {"a": [0, old], "b": [3 - old], "for_ms": 4_600}))
    plan.ops.append(Op(5_500, "crash", {
        "node": old, "how": "kill", "back": "old", "fuse": 0, "down_ms": 100,
    }))  # fmt: skip
    plan.ops.append(Op(6_900, "crash", {
        "node": 0, "how": "kill", "back": "disk", "fuse": 0, "down_ms": 5_000,
    }))  # fmt: skip
    return order(plan)


def three_homes(seed: int, nodes: int = 3, **options: Any) -> Plan:
    """A tube on several nodes whose clients follow its leader."""
    plan = Plan(seed=f"homes {nodes} {seed}", nodes=nodes, chaos_ms=16_000, policy="always")
    tube: dict[str, Any] = {"tube": "t0", "type": "fifottl", "node": 0, "ttr": 3_000}
    plan.ops.append(Op(0, "tube", tube | options))
    for i in range(3):
        shared: dict[str, Any] = {"tube": "t0", "node": i % nodes, "for_ms": 15_000}
        plan.ops.append(Op(10 + i, "tube_producer", {
            "client": f"p{i}", "idle_ms": 120, **shared,
        }))  # fmt: skip
        plan.ops.append(Op(100 + i, "tube_worker", {
            "client": f"w{i}", "many": 2, "work_ms": 100, "idle_ms": 40, "timeout": 500, **shared,
        }))  # fmt: skip
    plan.ops.append(Op(60, "add", {
        "client": "j", "node": 0, "queue": "q", "retry": 5, "ttl": 120, "repl": 1,
    }))  # fmt: skip
    return plan


def order(plan: Plan) -> Plan:
    """The plan with its operations in order of time."""
    plan.is_faultless = not plan.faults
    plan.ops.sort(key=lambda op: op.at_ms)
    return plan


def movers(seed: int) -> Plan:
    """Repeated switchovers."""
    plan = three_homes(seed)
    plan.ops.append(Op(500, "tube_mover", {
        "client": "v", "tube": "t0", "node": 0, "for_ms": 14_000, "idle_ms": 700,
    }))  # fmt: skip
    return order(plan)


def movers_on_new_links(seed: int) -> Plan:
    """The same on slow links that break: the next leader often lacks the last tasks."""
    plan = movers(seed)
    plan.seed, plan.faults, plan.node_timeout_ms = f"new links {seed}", ["slow", "break"], 5_000
    for a, b in ((0, 1), (0, 2), (1, 2)):
        plan.ops.append(Op(300, "slow", {"a": a, "b": b, "extra_ms": 150, "for_ms": 15_000}))
    for i in range(20):
        plan.ops.append(Op(900 + 650 * i, "break", {"node": (seed + i) % 3}))
    return order(plan)


def paused(seed: int) -> Plan:
    """Repeated switchovers of a tube that is sometimes paused."""
    plan = movers(seed)
    plan.seed = f"paused {seed}"
    plan.ops.append(Op(600, "tube_pauser", {
        "client": "z", "tube": "t0", "node": 0, "for_ms": 14_000, "idle_ms": 500, "hold_ms": 1_500,
    }))  # fmt: skip
    return order(plan)


def cut_off(seed: int) -> Plan:
    """The leader is cut off, its connections break, and another node takes over by force."""
    plan = three_homes(seed)
    plan.seed, plan.faults = f"cut off {seed}", ["cut", "break"]
    for k in range(2):
        at_ms = 2_000 + 7_000 * k
        cut = {"a": [k], "b": [1 - k, 2], "for_ms": 5_500}
        plan.ops.append(Op(at_ms, "cut", cut))
        for i in range(3):
            plan.ops.append(Op(at_ms + i, "break", {"node": k}))
        plan.ops.append(Op(at_ms + 10, "tube_forcer", {
            "client": f"f{k}", "tube": "t0", "node": 2, "for_ms": 30_000, "wait_ms": 150,
        }))  # fmt: skip
    return order(plan)


def stood_still(seed: int) -> Plan:
    """Of two nodes the leader stands still, and the other one takes over by force."""
    plan = three_homes(seed, 2)
    plan.seed, plan.faults, plan.node_timeout_ms = f"stood still {seed}", ["pause"], 1_000
    for k in range(2):
        plan.ops.append(Op(2_000 + 8_000 * k, "tube_forcer", {
            "client": f"f{k}", "tube": "t0", "node": 1 - k, "for_ms": 30_000, "wait_ms": 1_500,
            "still_ms": 6_500,
        }))  # fmt: skip
    return order(plan)


def two_and_power(seed: int) -> Plan:
    """Two nodes; the tube moves constantly, one node loses power and is cut off afterwards."""
    plan = three_homes(seed, 2)
    plan.seed, plan.policy = f"two and power {seed}", "everysec"
    plan.faults, plan.node_timeout_ms, plan.sync_us = ["power", "cut"], 1_000, 400_000
    plan.ops.append(Op(500, "tube_mover", {
        "client": "v", "tube": "t0", "node": 0, "for_ms": 14_000, "idle_ms": 300,
    }))  # fmt: skip
    for k in range(3):
        at_ms = 2_000 + 5_000 * k
        plan.ops.append(Op(at_ms, "crash", {
            "node": k % 2, "how": "power", "back": "disk", "fuse": 0, "down_ms": 50,
        }))  # fmt: skip
        plan.ops.append(Op(at_ms + 1, "cut", {"a": [0], "b": [1], "for_ms": 4_000}))
    return order(plan)


def power_and_moves(seed: int) -> Plan:
    """The tube moves constantly, and one node after the other loses power."""
    plan = three_homes(seed, 2)
    plan.seed, plan.policy = f"power and moves {seed}", "everysec"
    plan.faults, plan.node_timeout_ms, plan.sync_us = ["power"], 1_000, 200_000
    plan.ops.append(Op(500, "tube_mover", {
        "client": "v", "tube": "t0", "node": 0, "for_ms": 14_000, "idle_ms": 100,
    }))  # fmt: skip
    for k in range(6):
        plan.ops.append(Op(1_500 + 2_350 * k, "crash", {
            "node": k % 2, "how": "power", "back": "disk", "fuse": 0, "down_ms": 50,
        }))  # fmt: skip
    return order(plan)


def behind(seed: int, **options: Any) -> Plan:
    """Replication is slow; the leader ends, and another node takes over."""
    plan = three_homes(seed, **options)
    plan.seed, plan.faults, plan.node_timeout_ms = f"behind {seed}", ["slow", "kill"], 5_000
    for k in (1, 2):
        for at_ms in (1_000, 9_000):
            plan.ops.append(Op(at_ms, "slow", {
                "a": 0, "b": k, "extra_ms": 3_000, "for_ms": 2_500,
            }))  # fmt: skip
    plan.ops.append(Op(2_500, "tube_forcer", {
        "client": "f", "tube": "t0", "node": 1, "for_ms": 30_000, "kill": "kill",
        "down_ms": 12_000, "wait_ms": 500,
    }))  # fmt: skip
    return order(plan)


def behind_in_sync(seed: int) -> Plan:
    """The same, with calls that wait until two nodes have the change."""
    return behind(seed, sync=2)


HOME_FLAWS: Final = [
    Flaw("t12", "leases of leaders never end", leases_never_end, 20, cut_off),
    Flaw("t13", "a forced leader runs at once", force_does_not_wait, 30, cut_off),
    Flaw("t14", "an epoch is sent before it is safe", disk_is_not_awaited, 20, power_and_moves),
    Flaw("t15", "numbers are reused after a failover", numbers_do_not_jump, 20, behind),
    Flaw("t16", "SYNC does not wait", copies_are_not_awaited, 20, behind_in_sync),
    Flaw(
        "t17", "the leader changes before all is copied", given_too_early, 10, movers_on_new_links
    ),
    Flaw("t19", "a pause is lost when the leader changes", pauses_stay_behind, 5, paused),
    Flaw("t20", "a paused tube delivers tasks", pauses_are_not_looked_at, 5, paused),
    Flaw("t48", "a standstill is not noticed", standstills_are_not_noticed, 10, stood_still),
    Flaw("t40", "a stale copy gets votes", votes_go_to_stale_copies, 10, lost_while_behind),
    Flaw("t41", "a voter votes twice in one epoch", votes_are_given_twice, 20, two_at_once),
    Flaw("t42", "a vote is not on the disk", votes_are_not_recorded, 20, voter_dies),
    Flaw("t43", "a lease outlasts promises", leases_outlast_promises, 10, unlike_timeouts),
    Flaw("t44", "a promise is broken", promises_are_broken, 10, half_hidden),
    Flaw("t45", "a promise ends with a start", promises_end_with_a_start, 20, starts_and_votes),
    Flaw("t46", "an old disk is trusted", old_disks_are_trusted, 10, old_disk),
    Flaw("t47", "a node has several votes about a name", votes_about_tubes, 10, two_makers),
]
HOME_RULES: Final = {
    "t12": "tube-twice", "t13": "tube-twice", "t14": "tube-home", "t15": "tube-number",
    "t16": "tube-sync", "t17": "tube-home", "t19": "tube-pause", "t20": "tube-pause",
    "t48": "tube-stood", "t40": "tube-sync", "t41": "tube-twice", "t42": "tube-twice",
    "t43": "tube-twice", "t44": "tube-twice", "t45": "tube-twice", "t46": "tube-sync",
    "t47": "tube-twice",
}  # fmt: skip
