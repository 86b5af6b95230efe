"""CLUSTER VOTERS: show and change who votes about the leaders of tubes (SPEC T28)."""

from __future__ import annotations

from typing import Final

from tuque.core.node.node import Node
from tuque.core.node.peers import journal_fails
from tuque.server.replies.redirects import address_of, refusal_text
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.server.tubes.homes import await_home, node_named
from tuque.tubes.election.membership import change_voters, force_voters
from tuque.tubes.election.voters import may_vouch, unsettled
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tubes import Tubes
from tuque.tubes.model.voter_state import Voters
from tuque.tubes.policy import tubes_of
from tuque.wire.commands.arguments import ArgError, Misuse

SHOWN: Final = 20  # tubes


def cmd_voters(s: Server, c: Client, args: list[bytes]) -> None:
    """[T28] CLUSTER VOTERS [ADD node | REMOVE node | FORCE node ...]."""
    t = tubes_of(s.n)
    if len(args) == 2:
        c.reply(voters_of(s, t, c))
        return
    word = args[2].upper()
    if word == b"FORCE" and len(args) > 3:
        nodes = [node_named(s, one) for one in args[3:]]
        try:
            force_voters(s.n, t, nodes)
        except TubeError as error:
            raise ArgError(refusal_text(s, error)) from None
        c.ok()
        return
    if len(args) != 4 or word not in (b"ADD", b"REMOVE"):
        raise Misuse(args[2])
    node_id = node_named(s, args[3])
    try:
        change_voters(s.n, t, node_id, word == b"ADD", c.number, c.put_serial + 1)
    except TubeError as error:
        raise ArgError(refusal_text(s, error)) from None
    await_home(s, c)


def voters_of(s: Server, t: Tubes, c: Client) -> dict[str, object]:
    """The list in force, and what keeps it from changing (T28.7)."""
    voters = t.ballots.in_force()
    rows: list[object] = []
    waiting: list[bytes] = []
    if voters is not None:
        for node_id, right in voters.rights.items():
            state = state_of(s, t, voters, node_id)
            rows.append([node_id, address_of(s, node_id, c), right, state])
        waiting = unsettled(t, voters)
    return {
        "list": 0 if voters is None else int(voters.number),
        "origin": "" if voters is None else voters.origin.hex(),
        "right": int(t.ballots.right),
        "voters": rows,
        "unsettled": waiting[:SHOWN],
        "others": [[node_id, origin.hex()] for node_id, origin in t.ballots.strangers.items()],
    }


def state_of(s: Server, t: Tubes, voters: Voters, node_id: bytes) -> str:
    """What this node knows of a voter: that it votes, or why it cannot (T28.7)."""
    b = t.ballots
    if node_id == s.n.node_id:
        return own_state(s.n, t)
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


def own_state(n: Node, t: Tubes) -> str:
    """The same of this node; empty if it is no voter (T11.5)."""
    b = t.ballots
    voters = b.in_force()
    if voters is None or n.node_id not in voters.rights:
        return ""
    if journal_fails(n, 0):
        return "journal-fails"
    if not may_vouch(n, t):
        if n.is_double:
            return "conflict"
        return "asking" if b.is_asking and b.right > 0 else "lost-right"
    return "journal-off" if n.records is None else "votes"
