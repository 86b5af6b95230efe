"""TUBE HOME and STATE, CLUSTER VOTERS, and their delayed replies (SPEC T15.10, T17 to T21, T28)."""

from __future__ import annotations

from typing import Final

from tuque.core.node.node import Node
from tuque.core.node.peers import journal_fails
from tuque.logtext import facts
from tuque.server.replies.redirects import address_of, iproto_refusal, refusal_text
from tuque.server.replies.tubes import OK, TubeCall, put_values
from tuque.server.state.client import REPLY_OFF, REPLY_SKIPPING, Client
from tuque.server.state.notices import leave_notices
from tuque.server.state.server import Server, log
from tuque.tubes.election.force import force_voters, take_by_vote
from tuque.tubes.election.lease import timeouts_of
from tuque.tubes.election.membership import change_voters
from tuque.tubes.election.voters import may_vouch, unsettled
from tuque.tubes.leadership.switchover import move_home, take_home
from tuque.tubes.log.leader import (
    copies_needed,
    lag_of,
    state_of_node,
    state_of_tube,
)
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.model.tubes import HomeDone, Tubes
from tuque.tubes.model.voter_state import Voters
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import ArgError, Misuse
from tuque.wire.proto.iproto import error_reply
from tuque.wire.proto.resp import put_bulk

NO_NODE: Final = b"ERR no node '%s': name one by its id, the first characters of it, or host:port"
MANY_NODES: Final = b"ERR several nodes match %s"
NOT_HERE: Final = b"ERR FORCE runs on the node that is to lead the tube: %s"

SHOWN: Final = 20  # tubes


def state(call: TubeCall) -> None:
    """[T19] The state of the tube here, or of the node (T19.1)."""
    call.value(state_of_tube(call.at) if call.tube is not None else state_of_node(call.n, call.t))


def home(call: TubeCall) -> None:
    """[T15] The tube's leader, a switchover (T20), or a failover (T21)."""
    s, t, tube = call.s, call.t, call.at
    c = call.caller
    assert isinstance(c, Client)
    if call.options.name is None:
        call.value(home_of(s, c, t, tube))
        return
    node_id = node_named(s, call.options.name)
    if call.options.is_forced:
        if node_id != s.n.node_id:
            raise ArgError(NOT_HERE % address_of(s, node_id))
        if t.voter_state.leads(tube):
            take_by_vote(s.n, t, tube, call.client, call.serial())
        else:
            take_home(s.n, t, tube, call.client, call.serial())
    elif move_home(s.n, t, tube, node_id, call.client, call.serial()):
        call.value(OK)
        return
    call.await_home()


def home_of(s: Server, c: Client, t: Tubes, tube: Tube) -> dict[str, object]:
    """[T15] The tube's leader, and how far its replicas are (T15.10)."""
    node_id = home_id(s, tube)
    copies: list[object] = []
    for follower, lag, is_complete in lag_of(s.n, t, tube):
        copies.append([follower, address_of(s, follower, c), int(lag), int(is_complete)])
    return {
        "tube": tube.name,
        "home": node_id,
        "address": address_of(s, node_id, c),
        "epoch": int(tube.epoch),
        "state": state_of_tube(tube),
        "sync": int(copies_needed(s.n, t, tube)),
        "changes": int(tube.seq),
        "conflict": tube.conflict,
        "copies": copies,
    }


def home_id(s: Server, tube: Tube) -> bytes:
    """The node id of the leader; this node's if no leader is known."""
    return tube.home if len(tube.home) > 0 else s.n.node_id


def node_named(s: Server, word: bytes) -> bytes:
    """[T20] The node id for an id, its first characters, or host:port (T20.1). Raises ArgError."""
    if len(word) == 0:
        raise ArgError(NO_NODE % word)
    found: list[bytes] = []
    ids = [s.n.node_id] + [one.node_id for one in s.members.alive()]
    for node_id in ids:
        if node_id.startswith(word.lower()) or address_of(s, node_id) == word:
            found.append(node_id)
    own = address_of(s, s.n.node_id)
    if len(found) == 0 and own.startswith(b":") and is_own_address(word, own):
        return s.n.node_id
    if len(found) == 0:
        raise ArgError(NO_NODE % word)
    if len(found) > 1:
        raise ArgError(MANY_NODES % word)
    return found[0]


def is_own_address(word: bytes, own: bytes) -> bool:
    """Whether the address is this node's port at a loopback name of this machine."""
    host = word[: -len(own)]
    return word.endswith(own) and host in (b"127.0.0.1", b"localhost", b"[::1]")


# delayed replies


def await_home(s: Server, c: Client) -> None:
    """Block the client until its command is done."""
    c.put_serial += 1
    c.is_homing = True
    c.is_put_muted = c.reply_mode == REPLY_OFF or c.reply_mode == REPLY_SKIPPING
    c.is_blocked = True
    s.blocked += 1


def reply_leaders(s: Server, t: Tubes) -> None:
    """Reply to finished claims, switchovers and failovers; log changes of leaders."""
    if len(t.notes) > 0:
        for line in t.notes:
            log.warning("%(text)s", facts("tube_warning", text=line))
        t.notes = []
    if len(t.news) > 0:
        for line in t.news:
            log.info("%(text)s", facts("tube_leader", text=line))
        t.news = []
    if len(t.home_done) == 0:
        return
    done = t.home_done
    t.home_done = []
    for one in done:
        c = s.by_number.get(one.client)
        if c is not None:
            if c.is_homing and c.put_serial == one.serial:
                tell_client(s, c, one)
            continue
        w = s.wired_by_number.get(one.client)
        asked = None if w is None else w.claims.pop(one.serial, None)
        if w is not None and asked is not None:
            if one.error is not None:
                told = iproto_refusal(s, t, one.error)
                w.out.append(error_reply(asked.sync, told.code, w.worded(told.text)))
            else:
                put_values(w, asked.sync, asked.is_16, [])  # I3.2
            w.last_ms = s.n.now_ms
            s.touch(w)


def send_watchers_away(s: Server, t: Tubes) -> None:
    """[T16] Tell subscribers of a tube led elsewhere where it is, and unsubscribe them (T16.5)."""
    for name in list(s.notices.watchers):
        tube = t.by_name.get(name)
        if tube is None or tube.is_mine:
            continue
        at = address_of(s, tube.home)
        for number in list(s.notices.watchers[name]):
            c = s.by_number.get(number)
            if c is not None:
                called = c.named(name)
                c.out.append(b">3\r\n$9\r\ntube-home\r\n")
                put_bulk(c.out, called)
                put_bulk(c.out, at)
                s.touch(c)
                leave_notices(s, c, [name])


def tell_client(s: Server, c: Client, one: HomeDone) -> None:
    """Reply to a RESP client."""
    c.is_homing = False
    c.is_blocked = False
    s.blocked -= 1
    c.last_ms = s.n.now_ms
    if not c.is_put_muted:
        if one.error is not None:
            c.error(refusal_text(s, one.error))
        elif len(one.values) > 0:
            c.reply(dict(one.values))  # T21.3
        else:
            c.ok()
    s.touch(c)
    if len(c.todo) > 0 or c.reader.error:
        s.resumed.append(c)


# ---- CLUSTER VOTERS: the voters, shown and changed (SPEC T28)


def cmd_voters(s: Server, c: Client, args: list[bytes]) -> None:
    """[T28] CLUSTER VOTERS [ADD node | REMOVE node | FORCE node ...]."""
    t = tubes_of(s.n)
    if len(args) == 2:
        c.reply(voters_of(s, t, c))
        return
    word = args[2].upper()
    if len(args) < 4 or word not in (b"ADD", b"REMOVE", b"FORCE"):
        raise Misuse(args[2])
    if len(args) > 4 and word != b"FORCE":
        raise Misuse(args[2])
    nodes = [node_named(s, one) for one in args[3:]]
    try:
        if word == b"FORCE":
            force_voters(s.n, t, nodes, c.number, c.put_serial + 1)
        else:
            change_voters(s.n, t, nodes[0], word == b"ADD", c.number, c.put_serial + 1)
    except TubeError as error:
        raise ArgError(refusal_text(s, error)) from None
    await_home(s, c)


def voters_of(s: Server, t: Tubes, c: Client) -> dict[str, object]:
    """The list in force, what keeps it from changing, and `tube-lease-timeout`s (T28.7)."""
    b = t.voter_state
    voters = b.in_force()
    rows: list[object] = []
    waiting: list[bytes] = []
    timeouts = (0, 0)
    if voters is not None:
        timeouts = timeouts_of(s.n, t, voters)
        for node_id, right in voters.rights.items():
            state = state_of(s, t, voters, node_id)
            rows.append([node_id, address_of(s, node_id, c), right, state])
        waiting = unsettled(t, voters)
    return {
        "list": 0 if voters is None else int(voters.number),
        "origin": "" if voters is None else voters.origin.hex(),
        "right": int(b.right),
        "voters": rows,
        "unsettled": waiting[:SHOWN],
        "lease-timeouts": list(timeouts),
        "others": [[node_id, origin.hex()] for node_id, origin in b.strangers.items()],
    }


def state_of(s: Server, t: Tubes, voters: Voters, node_id: bytes) -> str:
    """What this node knows of a voter: that it votes, or why it cannot (T28.7)."""
    b = t.voter_state
    if node_id == s.n.node_id:
        return own_state(s.n, t, s.idle)
    slot = s.n.slot_of.get(node_id)
    if slot is not None and journal_fails(s.n, slot):
        return "journal-fails"
    if slot is None or (s.n.reachable | s.n.leavers) >> slot & 1 == 0:
        return "unreachable"
    if b.asking >> slot & 1:
        return "asking"
    if b.lame >> slot & 1:
        return "lost-right"
    return "journal-off" if b.no_journal >> slot & 1 else "votes"


def own_state(n: Node, t: Tubes, idle: str) -> str:
    """The same of this node; empty if it is no voter (T11.5). `idle`: why it does no work."""
    b = t.voter_state
    voters = b.in_force()
    if voters is None or n.node_id not in voters.rights:
        return ""
    if journal_fails(n, 0):
        return "journal-fails"
    if not may_vouch(n, t, voters):
        if n.is_double:
            return idle or "conflict"
        return "asking" if b.is_asking and b.right > 0 else "lost-right"
    return "journal-off" if n.records is None else "votes"
