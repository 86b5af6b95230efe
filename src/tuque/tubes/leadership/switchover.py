"""A tube gets another leader: standstill, switchover, failover by command (SPEC T19.7, T20, T21).

A switchover copies until the new leader has everything on disk, records the next epoch here, and
hands over once that is on disk. A failover records the next epoch on the new leader, which waits
until an old leader that may still run must know of it.
"""

from typing import Final

from mypy_extensions import i64

from tuque.core.model import errors as why
from tuque.core.model.errors import STOOD_MEANWHILE
from tuque.core.model.task import FAR
from tuque.core.msgs.bus import TubeClaimed, TubeYours
from tuque.core.node.node import Node
from tuque.core.node.peers import (
    count_of,
    journal_fails,
    say,
    slots_of,
)
from tuque.tubes.leadership.activate import (
    ask_sync,
    end_waits,
    keep_holders,
    send_away,
    set_home_state,
    stop,
    wait_here,
)
from tuque.tubes.leadership.create import (
    ALIVE,
    DRIVER_FAILED,
    KNOWN,
    TYPE_MISSING,
    ask_nodes,
    ask_target,
)
from tuque.tubes.leadership.load import turn_back
from tuque.tubes.log.catalog import announce
from tuque.tubes.log.leader import (
    had_by,
    has_heard_since,
    has_lease,
    is_even,
    may_vote_about,
    needs_home,
    others_of,
)
from tuque.tubes.log.send import ask_surely, mark_changed
from tuque.tubes.log.vote_state import record_family, seat_of, shortest_ms, vote_of
from tuque.tubes.model.driver_guard import why_stopped
from tuque.tubes.model.errors import TubeError, shown
from tuque.tubes.model.tube import (
    ENDING,
    INIT,
    RUNNING,
    STARTUP,
    Move,
    Tube,
)
from tuque.tubes.model.tubes import Claim, HomeDone, Tubes
from tuque.tubes.types.driver import NO_TYPE, Absent
from tuque.tubes.work.transitions import RESERVE, record_tube, reserve_tokens

MOVE_MS: Final = 10_000  # a longer switchover is abandoned (T20.2)
TASKS_A_MS: Final = 100  # plus 1 ms for this many tasks
NUMBER_GAP: Final = 1_000_000  # task numbers that a lost leader may have used (T21.3)
TOKEN_GAP: Final = 1 << 20


# ---- After a standstill a leader waits for other nodes before it continues (SPEC T19.7)


def on_standstill(n: Node, t: Tubes) -> bool:
    """[T19] The process stood still: tubes led here wait (T19.7).

    True if a tube ran here, so that unsent replies about it may now be wrong.
    """
    t.stood_ms = n.now_ms
    t.voter_state.since_ms = n.now_ms  # nobody could answer (T28.4)
    t.must_look = True
    did_run = False
    for tube in list(t.by_name.values()):
        if not tube.is_mine or tube.state == INIT:
            continue  # T19.4: it waits for the others anyway
        if t.voter_state.decides(tube, n.node_id):
            continue  # nobody else could have been elected
        did_run = did_run or runs_here(tube)
        tube.is_unsure = True
        if tube.state == RUNNING:
            wait_here(n, t, tube)
    end_claims(t)
    return did_run


def runs_here(tube: Tube) -> bool:
    """Whether the tube ran here until now."""
    return tube.is_mine and (tube.state == RUNNING or tube.state == ENDING)


def run_any(t: Tubes) -> bool:
    """Whether any tube runs on this node."""
    return any(runs_here(tube) for tube in t.by_name.values())


def end_claims(t: Tubes) -> None:
    """Replies of other nodes are stale: clients that wait for them must ask again."""
    claims = t.claims
    t.claims = {}
    t.must_look = True  # other nodes may wait for their end (T17.5)
    for claim in claims.values():
        done = HomeDone(claim.client, claim.serial, None)
        done.error = TubeError(STOOD_MEANWHILE)
        t.home_done.append(done)


def make_sure(n: Node, t: Tubes) -> None:
    """[T19] Tubes whose leadership enough nodes have confirmed may run again (T19.7)."""
    if t.stood_ms == 0 or not has_heard_since(n, t):
        return
    t.stood_ms = 0
    for tube in t.by_name.values():
        tube.is_unsure = False
    t.must_look = True


def may_be_forced(tube: Tube) -> bool:
    """[T21] Whether this node leads it, but waits for an operator or other nodes (T21.1)."""
    return tube.is_mine and tube.wish == 0 and (tube.state == INIT or tube.is_unsure)


# ---- Planned switchovers (SPEC T20)


def move_home(n: Node, t: Tubes, tube: Tube, node_id: bytes, client: i64, serial: i64) -> bool:
    """[T20] ON TUBE HOME tube node: True if nothing is to be done; else the reply comes later.

    The target is first asked whether it can serve the tube, which keeps running (T20.1).
    Raises TubeError.
    """
    needs_home(n, t, tube)
    if node_id == n.node_id:
        return True
    ask_target(n, t, tube, target_of(n, t, tube, node_id), client, serial)
    return False


def target_of(n: Node, t: Tubes, tube: Tube, node_id: bytes) -> i64:
    """The slot of the node, if the tube may move there now. Raises TubeError (T20.1)."""
    needs_home(n, t, tube)
    if tube.move is not None:
        raise TubeError(why.MOVING, (tube.name,))
    slot = n.slot_of.get(node_id)
    if slot is not None and journal_fails(n, slot):
        raise TubeError(why.JOURNAL_FAILS, (node_id,))
    if slot is None or n.linked >> i64(slot) & 1 == 0:
        raise TubeError(why.NO_NODE)
    if not may_vote_about(n, t, tube, node_id):
        raise TubeError(why.NO_VOTE_THERE, (tube.name, node_id, node_id))
    if not may_be_home(n, t, tube, slot):
        raise TubeError(why.NO_HOME_THERE)
    return slot


def is_bound(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T27] Whether the former life of this node may still keep it from voting (T25.5, T27.6)."""
    return t.voter_state.leads(tube) and n.now_ms < t.voter_state.bound_ms


def decide_move(n: Node, t: Tubes, claim: Claim, tube: Tube) -> None:
    """[T20] The target has replied, or is gone: start the switchover or refuse it (T20.1)."""
    try:
        if t.by_name.get(tube.name) is not tube:
            raise TubeError(why.NO_TUBE)
        needs_home(n, t, tube)
        if claim.answer < 0:
            raise TubeError(why.MOVE_BROKEN, (tube.name,))
        if claim.answer == TYPE_MISSING:
            about = (claim.target, tube.type, tube.name, tube.type)
            raise TubeError(why.NO_TYPE_THERE, about)
        if claim.answer == DRIVER_FAILED:
            raise TubeError(why.FAILED_THERE, (claim.target, tube.type, tube.name))
        slot = target_of(n, t, tube, claim.target)
        begin_move(n, t, tube, slot, claim.client, claim.serial)
    except TubeError as error:
        done = HomeDone(claim.client, claim.serial, tube)
        done.error = error.with_traceback(None)  # drop the frames: the collector is off
        t.home_done.append(done)


def may_be_home(n: Node, t: Tubes, tube: Tube, slot: i64) -> bool:
    """Whether the node could lead the tube now (T20.1)."""
    bit: i64 = 1 << slot
    if n.reachable & bit == 0 or t.read_only & bit or tube.apart & bit:
        return False
    return t.heard & bit != 0 and may_vote_about(n, t, tube, n.peers[slot].node_id)


def begin_move(n: Node, t: Tubes, tube: Tube, slot: i64, client: i64, serial: i64) -> None:
    """[T20] The tube is ENDING; the new leader gets the rest (T20.2)."""
    node_id = n.peers[slot].node_id
    count: i64 = len(tube.tasks) + len(tube.copies)
    limit_ms = MOVE_MS + count // TASKS_A_MS
    tube.move = Move(slot, node_id, client, serial, n.now_ms, limit_ms)
    if tube.state == RUNNING:
        stop(n, t, tube)
    turn_back(t, tube)
    send_away(n, t, tube)
    mark_changed(t, tube)
    t.must_look = True


def step_move(n: Node, t: Tubes, tube: Tube, move: Move) -> None:
    """Continue a switchover: the new leader has all, has it on disk, or is too slow."""
    if move.is_given:
        give_again(n, t, tube)
        if move.until_ms <= n.now_ms:
            answer(t, tube, move, TubeError(why.MOVE_UNSURE, (tube.name,)))
            move.until_ms = FAR
        return
    peer = n.peers[move.slot]
    if journal_fails(n, move.slot):
        give_up(n, t, tube, move, TubeError(why.JOURNAL_FAILS, (peer.node_id,)))
    elif not peer.is_linked or not may_be_home(n, t, tube, move.slot):
        give_up(n, t, tube, move, TubeError(why.MOVE_BROKEN, (tube.name,)))
    elif move.until_ms <= n.now_ms:
        late = TubeError(why.MOVE_SLOW, (tube.name, move.limit_ms // 1000))
        give_up(n, t, tube, move, TubeError(why.OWN_JOURNAL) if journal_fails(n, 0) else late)
    elif not has_lease(n.now_ms, t, tube) or tube.is_unsure:
        give_up(n, t, tube, move, TubeError(why.MOVE_BROKEN, (tube.name,)))
    elif tube.is_temporary or move.on_disk_seq == tube.seq:
        if not crosses(t, tube) or is_even(n, t, tube):  # T23.7
            give(n, t, tube, move)
    else:
        follower = tube.followers.get(move.slot)
        if follower is not None and follower.is_complete and follower.got == tube.seq:
            if move.asked_seq != tube.seq:
                move.asked_seq = tube.seq
                ask_surely(n, t, tube, move.slot)


def give_up(n: Node, t: Tubes, tube: Tube, move: Move, error: TubeError) -> None:
    """[T20] Abandon the switchover: the tube runs again under its epoch (T20.2)."""
    tube.move = None
    if move.client < 0:
        tube.rests_ms = n.now_ms + n.limits.node_timeout_ms
    answer(t, tube, move, error)
    if not is_waiting(tube):
        wait_here(n, t, tube)
    t.must_look = True


def is_waiting(tube: Tube) -> bool:
    """Whether it neither runs nor is ending."""
    return tube.state not in (RUNNING, ENDING)


def give(n: Node, t: Tubes, tube: Tube, move: Move) -> None:
    """[T20] Record the next epoch; TUBE-YOURS is sent once that is on disk (T20.3)."""
    move.is_given = True
    t.homes_moved += 1
    node = move.node_id[:8].decode()
    t.news.append(f"tube {shown(tube.name)}: its leader will be {node} (epoch {tube.epoch + 1})")
    if t.in_replicaset:
        keep_holders(n, t, tube)
    if t.voter_state.leads(tube):
        give_by_vote(n, t, tube, move)
        return
    tube.is_local = False
    tube.is_mine = False
    tube.is_owed = True
    tube.epoch += 1
    tube.home = move.node_id
    tube.told_seq = tube.seq
    tube.followers = {}
    ask_sync(n, t, tube)


def give_by_vote(n: Node, t: Tubes, tube: Tube, move: Move) -> None:
    """[T27] Give the tube up, and ask the new leader to stand up at once (T27.6)."""
    if crosses(t, tube):
        cross(n, t, tube)
    if not is_waiting(tube):
        wait_here(n, t, tube)
    tube.is_won = False
    tube.lease_ms = 0
    seat = seat_of(tube)
    seat.silent_ms = n.now_ms
    timeout_ms: i64 = shortest_ms(n, t)
    seat.wait_ms = n.now_ms + (timeout_ms if n.is_leaving else timeout_ms // 2)
    t.voter_state.moved.append(tube)
    yours = TubeYours(
        tube.name,
        tube.maker,
        tube.made_ns,
        tube.epoch + 1,
        tube.seq,
        tube.next_number,
        t.token,
        tube.family,
        tube.moves,
        tube.from_number,
    )
    say(n, move.slot, yours)


# ---- A tube moves from the list that lost to the one that won (SPEC T23.7)


def crosses(t: Tubes, tube: Tube) -> bool:
    """[T23] Whether the solo list of this node chooses its leader, and has lost (T23.7)."""
    own = t.voter_state.own
    return own is not None and tube.led_by_votes and own.family == tube.family


def may_cross(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T23] Whether a majority of the list that won has whole copies: it is soon even (T23.7)."""
    voters = t.voter_state.voters
    return voters is not None and had_by(n, t.voter_state, tube, voters, voters.majority()) >= 0


def cross(n: Node, t: Tubes, tube: Tube) -> None:
    """[T23] Record that voters of the other list choose its leader, and from which number on.

    Nothing of this turn leaves before that is on the disk (T23.7): not the last word, either, that
    this node leads no more.
    """
    voters = t.voter_state.voters
    assert voters is not None, "a list lost to none"
    if tube.family != voters.family:
        tube.moves += 1
        tube.family = voters.family
    tube.from_number = voters.number
    t.voter_state.moved.append(tube)
    t.voter_state.hurry()
    if n.records is not None:
        record_family(n.records, tube)
        n.records.has_custody = True


def give_again(n: Node, t: Tubes, tube: Tube) -> None:
    """[T23] The other list has changed since the tube was given: give it under this one (T23.7)."""
    voters = t.voter_state.voters
    if voters is None or tube.from_number in (0, voters.number) or tube.is_won:
        return
    epoch, node_id = vote_of(tube)
    if tube.family != voters.family or (epoch, node_id) != (tube.epoch, n.node_id):
        return
    if tube.is_mine and is_even(n, t, tube):
        cross(n, t, tube)


def cross_alone(n: Node, t: Tubes, tube: Tube) -> bool:
    """[T23] This node alone votes in the list that won, too: the tube needs no other one."""
    voters = t.voter_state.voters
    if not crosses(t, tube) or voters is None or not voters.is_only(n.node_id):
        return False
    if tube.state != RUNNING or not is_even(n, t, tube):
        return False
    cross(n, t, tube)
    wait_here(n, t, tube)
    tube.is_won = False
    tube.lease_ms = 0
    return True


def on_given(n: Node, t: Tubes, tube: Tube) -> None:
    """[T20] The epoch is on disk: the tube is WAITING here, even if the message is lost (T20.3)."""
    if not is_waiting(tube):
        wait_here(n, t, tube)
    slot = n.slot_of.get(tube.home)
    if slot is not None:
        send_yours(n, t, tube, slot)
    announce(n, t, [tube], -1 if slot is None else slot)


def send_yours(n: Node, t: Tubes, tube: Tube, slot: i64) -> None:
    """Send TUBE-YOURS, perhaps again."""
    yours = TubeYours(
        tube.name,
        tube.maker,
        tube.made_ns,
        tube.epoch,
        tube.seq,
        tube.next_number,
        t.token,
        tube.family,
        tube.moves,
        tube.from_number,
    )
    say(n, slot, yours)


def on_yours(n: Node, t: Tubes, slot: i64, m: TubeYours) -> None:
    """[T20] ON RECV TUBE-YOURS: lead the tube, if everything is here (T20.4)."""
    tube = t.by_name.get(m.name)
    if tube is None or tube.maker != m.maker or tube.made_ns != m.made_ns:
        return
    if tube.is_mine or m.epoch < tube.epoch:
        return
    if t.voter_state.leads(tube):
        on_yours_by_vote(n, t, tube, m)
        return
    if m.epoch == tube.epoch and tube.home != n.node_id:
        return
    is_whole = tube.is_complete and tube.seq == m.seq and tube.copy_epoch == m.epoch - 1
    if not is_whole and not tube.is_temporary:
        return  # T22.2: lost since
    if tube.next_number < m.next_number:
        tube.next_number = m.next_number
    if t.token < m.token:
        t.token = m.token
    t.homes_given += 1
    become_home(n, t, tube, m.epoch, b"its leader gave it to this node")


def on_yours_by_vote(n: Node, t: Tubes, tube: Tube, m: TubeYours) -> None:
    """[T27] Stand up at once for a tube that its leader gave up (T27.6)."""
    if not tube.is_complete or tube.seq != m.seq or tube.copy_epoch != m.epoch - 1:
        return
    if tube.take_family(m.family, m.moves, m.from_number) and n.records is not None:
        record_family(n.records, tube)  # T23.7
    seat = seat_of(tube)
    seat.given_epoch = tube.copy_epoch
    seat.given_seq = m.seq
    seat.silent_ms = 1
    seat.wait_ms = 0
    seat.resigned_epoch = max(seat.resigned_epoch, tube.copy_epoch)
    seat.resigned_node = tube.home
    tube.next_number = max(tube.next_number, m.next_number)
    t.token = max(t.token, m.token)
    t.voter_state.hurry()


def become_home(n: Node, t: Tubes, tube: Tube, epoch: i64, reason: bytes) -> None:
    """The tube is STARTUP here, until the disk has the epoch; events tell the reason (E1.8)."""
    if n.events is not None:
        n.events.home_changed(n.now_ms, tube.name, epoch, reason)
    end_waits(t, tube)  # it was handed over, and nobody took it
    t.news.append(f"tube {shown(tube.name)}: its leader is this node now (epoch {epoch})")
    if isinstance(tube.driver, Absent):
        t.notes.append(NO_TYPE % (shown(tube.name), shown(tube.type)))  # T14.5
    tube.before_epoch = tube.copy_epoch
    tube.begin_seq = tube.seq
    if tube.loaded_seq > tube.seq:
        tube.loaded_seq = tube.seq  # a number of before another one led
    tube.epoch = epoch
    tube.home = n.node_id
    tube.is_mine = True
    tube.is_won = True
    tube.may_send = True
    tube.is_owed = False
    tube.is_unsure = False
    tube.is_asking = False
    tube.overtaken = None
    tube.followers = {}
    tube.exact_seq = -1
    tube.trail_end = -1
    tube.seq_reserved = 0
    if tube.state != STARTUP:
        set_home_state(tube, STARTUP)
    if n.records is not None:
        tube.reserved = tube.next_number + RESERVE
        record_tube(n.records, tube)  # task numbers used elsewhere are not used again
        if t.token >= t.token_reserved:
            reserve_tokens(n, t)  # nor tokens
    ask_sync(n, t, tube)


def on_leader_told(t: Tubes, tube: Tube) -> None:
    """[T20] The new leader reports that it runs: the switchover is done (T20.4)."""
    tube.is_owed = False
    move = tube.move
    if move is not None and move.is_given:
        tube.move = None
        answer(t, tube, move, None)


def answer(t: Tubes, tube: Tube, move: Move, error: TubeError | None) -> None:
    """Reply once to the client that asked for the switchover."""
    if move.client >= 0:
        done = HomeDone(move.client, move.serial, tube)
        done.error = error
        t.home_done.append(done)
        move.client = -1


# ---- Failover by command (SPEC T21)


def take_home(n: Node, t: Tubes, tube: Tube, client: i64, serial: i64) -> None:
    """[T21] ON TUBE HOME tube node FORCE, on that node: ask the others what they have (T21.1).

    The reply comes in `t.home_done`. Raises TubeError.
    """
    if t.is_read_only:
        raise TubeError(why.NODE_READ_ONLY)
    may_force = not tube.is_mine or may_be_forced(tube)
    if not may_force and tube.run_ms == 0:
        raise TubeError(why.HOME_ALIVE, (tube.name,))
    is_moving = tube.move is not None and not tube.move.is_given
    if is_moving or not may_force:
        raise TubeError(why.MOVING, (tube.name,))
    claim = ask_nodes(n, t, tube.name, client, serial, tube.epoch + 1)
    if claim.waiting == 0:
        del t.claims[claim.number]
        decide_force(n, t, claim)


def on_force_answer(n: Node, t: Tubes, slot: i64, claim: Claim, m: TubeClaimed) -> None:
    """A node replied whether it is the leader, and what it has."""
    tube = t.by_name.get(claim.name)
    if tube is None or claim.refused is not None:
        return
    if m.answer == ALIVE:
        claim.refused = TubeError(why.HOME_ALIVE, (tube.name,))
        return
    if m.answer == KNOWN:
        claim.apart |= 1 << slot
        return
    is_later = m.copy_epoch > tube.copy_epoch
    if m.copy_epoch == tube.copy_epoch:
        if m.is_complete == tube.is_complete:
            is_later = m.seq > tube.seq
        else:
            is_later = m.is_complete
    if is_later:
        claim.refused = TubeError(why.LATER_COPY, (n.peers[slot].node_id, tube.name))


def decide_force(n: Node, t: Tubes, claim: Claim) -> None:
    """[T21] All have replied: this node leads, or the error says why not (T21.1)."""
    done = HomeDone(claim.client, claim.serial, None)
    tube = t.by_name.get(claim.name)
    others = others_of(n)
    total = 1 + count_of(others)
    reached = 1 + count_of(n.reachable & others)
    if tube is None or tube.epoch >= claim.epoch or (tube.is_mine and not may_be_forced(tube)):
        done.error = TubeError(why.MOVING, (claim.name,))
    elif claim.refused is not None:
        done.error = claim.refused
    elif reached * 2 <= total and total != 2:
        done.error = TubeError(why.FEW_NODES, (reached, total))
    if done.error is not None or tube is None:
        t.home_done.append(done)
        return
    done.tube = tube
    missing = max(0, tube.told_seq - tube.seq)
    tube.next_number += NUMBER_GAP
    done.values = [
        (b"home", n.node_id),
        (b"epoch", b"%d" % (tube.epoch + 1)),
        (b"copy", b"complete" if tube.is_complete else b"incomplete"),
        (b"changes-missing", b"%d" % missing),
        (b"last-heard-ms", b"%d" % (n.now_ms - tube.heard_ms if tube.heard_ms > 0 else -1)),
        (b"next-id", b"%d" % tube.next_number),
        (b"stopped", why_stopped(tube.type, tube.driver).encode()),
    ]
    token = t.token + TOKEN_GAP
    t.token = token if token > n.now_ms * 1000 else n.now_ms * 1000
    tube.apart = claim.apart
    tube.run_ms = -1
    if total <= 2 and reached < 2:
        tube.run_ms = n.now_ms + 2 * n.limits.node_timeout_ms
    if total == 1:
        tube.run_ms = 0
    if tube.home != n.node_id:
        node = tube.home[:8].decode()
        t.notes.append(f"tube {shown(tube.name)}: its leader {node} was replaced by command")
    t.homes_by_command += 1
    become_home(n, t, tube, claim.epoch, b"by command, without its leader")
    t.forced[tube.name] = done
    announce(n, t, [tube], -1)


def on_forced(t: Tubes, tube: Tube) -> None:
    """The epoch is on disk: reply to the command."""
    done = t.forced.pop(tube.name, None)
    if done is not None:
        t.home_done.append(done)


def may_run_forced(n: Node, tube: Tube) -> bool:
    """[T21] Whether an old leader that may still run must know of the new one (T21.2).

    It must once all nodes know of the new epoch, or have no replica of this tube; or once more than
    half have known it for twice cluster-node-timeout: its lease has ended.
    """
    others = others_of(n)
    total = 1 + count_of(others)
    knowing: i64 = 1
    apart: i64 = 0
    for slot in slots_of(others):
        follower = tube.followers.get(slot)
        if follower is not None and follower.known >= tube.epoch:
            knowing += 1
        elif tube.apart >> i64(slot) & 1:
            apart += 1  # it has no replica to run
    if knowing + apart == total:
        tube.run_ms = 0
    elif knowing * 2 > total and tube.run_ms < 0:
        tube.run_ms = n.now_ms + 2 * n.limits.node_timeout_ms
    return 0 <= tube.run_ms <= n.now_ms
