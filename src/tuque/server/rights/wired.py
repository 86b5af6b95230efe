"""Rights of a call over IPROTO, by the table of users (SPEC N8)."""

from tuque.server.rights.check import note
from tuque.server.state.iproto_connection import Wired
from tuque.server.state.state import Server
from tuque.server.users.account import Account
from tuque.server.users.denials import COMMAND, QUEUE
from tuque.wire.commands.rights import Unit


def may_call(s: Server, w: Wired, account: Account, unit: Unit, tube: bytes | None) -> bool:
    """[N8] Whether the user has the unit and may see the tube, if one is named (N8.2)."""
    if not account.granted[unit.code]:
        note(s, w, account, COMMAND, unit.name.encode())
        return False
    if tube is not None and len(tube) > len(account.prefix) and not account.may_see(tube):
        note(s, w, account, QUEUE, tube)
        return False
    return True
