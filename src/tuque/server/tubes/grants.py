"""TUBE GRANT, REVOKE and GRANTS: who of the users of IPROTO may call a tube (SPEC T10, T15)."""

from __future__ import annotations

from typing import Final

from tuque.server.replies.iproto_replies import end_takes
from tuque.server.state.client import Client
from tuque.server.state.state import Server
from tuque.server.tubes.words import tube_named
from tuque.tubes.model.grants import CALL, PREFIX, TRUNCATE, USER, role_key, user_key
from tuque.tubes.model.registry import Tubes
from tuque.tubes.tasks import admin
from tuque.wire.args import SYNTAX, ArgError
from tuque.wire.resp import int_reply

NO_USER: Final = b"ERR User '%s' is not found"
NO_ROLE: Final = b"ERR Role '%s' is not found"
DENIED: Final = b"Execute access to function '%s.%s:take' is denied for user '%s'"
BITS: Final = {b"CALL": CALL, b"TRUNCATE": TRUNCATE}


class Wish:
    """The words behind the name of a user or role."""

    def __init__(self, args: list[bytes]) -> None:
        self.name = args[3]
        self.is_role = False
        self.bits = 0
        self.prefix: bytes | None = None
        at = 4
        while at < len(args):
            word = args[at].upper()
            if word in BITS:
                self.bits |= int(BITS[word])
            elif word == b"ROLE":
                self.is_role = True
            elif word == b"PREFIX" and at + 1 < len(args):
                at += 1
                self.prefix = args[at]
            else:
                raise ArgError(SYNTAX)
            at += 1

    def holder(self) -> bytes:
        """Whom it is about."""
        return role_key(self.name) if self.is_role else user_key(self.name)


def grant_calls(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T10] TUBE GRANT tube name [ROLE] [CALL] [TRUNCATE] [PREFIX name] (T10.3)."""
    tube = tube_named(t, args[2])
    wish = Wish(args)
    if wish.is_role and wish.name not in s.users.roles:
        raise ArgError(NO_ROLE % wish.name)
    if not wish.is_role and wish.name not in s.users.by_name:
        raise ArgError(NO_USER % wish.name)
    admin.grant(s.n, t, wish.holder(), tube, wish.bits, wish.prefix or PREFIX)
    c.ok()


def revoke_calls(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T10] TUBE REVOKE tube name [ROLE] [CALL] [TRUNCATE] [PREFIX name] (T10.4)."""
    tube = tube_named(t, args[2])
    wish = Wish(args)
    bits = wish.bits or CALL | TRUNCATE
    c.out.append(int_reply(admin.revoke(s.n, t, wish.holder(), tube, bits, wish.prefix)))
    for w in list(s.wired.values()):
        user = w.user
        if not user.is_admin and not t.rights.may_read(user.holders, tube.name):
            end_takes(s, w, tube.name, DENIED % (PREFIX, tube.name, user.name))


def grants(s: Server, c: Client, t: Tubes, args: list[bytes]) -> None:
    """[T10] TUBE GRANTS [tube]: each grant with tube, kind and name of who has it (T10.5)."""
    name = tube_named(t, args[2]).name if len(args) == 3 else b""
    rows: list[object] = []
    for one in t.rights.listing(name):
        kind = b"user" if one.holder.startswith(USER) else b"role"
        words = [word.lower() for word, bit in BITS.items() if one.bits & bit]
        rows.append([one.tube, kind, one.holder[1:], words, one.prefix])
    s.n.work += len(rows)
    c.reply(rows)
