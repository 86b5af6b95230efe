"""Which users of IPROTO may call a tube (SPEC T10, T15, I5)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from tuque.server.replies.iproto_replies import end_takes
from tuque.server.tubes.call import OK, TubeCall
from tuque.tubes.model.errors import NO_ROLE, NO_USER, TubeError
from tuque.tubes.model.grants import CALL, TRUNCATE, USER, role_key, user_key
from tuque.tubes.model.grants import PREFIX as OWN_PREFIX
from tuque.tubes.tasks import admin

DENIED: Final = b"Execute access to function '%s.%s:take' is denied for user '%s'"
NAMES: Final = {b"call": CALL, b"truncate": TRUNCATE}


def holder_of(call: TubeCall) -> bytes:
    """The key of the user or role that the call names."""
    name = call.options.name or b""
    return role_key(name) if call.options.is_role else user_key(name)


def bits_of(call: TubeCall) -> i64:
    """The rights that the call names."""
    return (CALL if call.options.may_call else 0) | (TRUNCATE if call.options.may_truncate else 0)


def grant_calls(call: TubeCall) -> None:
    """[T10] Grant a user or a role the right to call the tube (T10.3)."""
    users = call.s.users
    o = call.options
    if o.is_role and o.name not in users.roles:
        raise TubeError(NO_ROLE, (o.name or b"",))
    if not o.is_role and o.name not in users.by_name:
        raise TubeError(NO_USER, (o.name or b"",))
    holder = holder_of(call)
    admin.grant(call.n, call.t, holder, call.at, bits_of(call), o.prefix or OWN_PREFIX)
    call.value(OK)


def grant_role(call: TubeCall) -> None:
    """[I5] Grant a role the right to call the tube (I5.7)."""
    call.set_option("is_role", True)
    grant_calls(call)


def revoke_calls(call: TubeCall) -> None:
    """[T10] Revoke rights: those named, else all (T10.4)."""
    t, tube = call.t, call.at
    bits = bits_of(call)
    if bits == 0:
        bits = CALL | TRUNCATE
    call.value(int(admin.revoke(call.n, t, holder_of(call), tube, bits, call.options.prefix)))
    for w in list(call.s.wired.values()):
        user = w.user
        if not user.sees(tube.name) and not t.rights.may_read(user.holders, tube.name):
            end_takes(call.s, w, tube.name, DENIED % (OWN_PREFIX, tube.name, user.name))


def grants(call: TubeCall) -> None:
    """[T10] Each grant: the tube, and the kind and name of its holder (T10.5)."""
    rows: list[object] = []
    for one in call.t.rights.listing(call.tube or b""):
        if not call.sees(one.tube):
            continue
        kind = b"user" if one.holder.startswith(USER) else b"role"
        words = [word for word, bit in NAMES.items() if one.bits & bit]
        rows.append([one.tube, kind, one.holder[1:], words, one.prefix])
    call.n.work += len(rows)
    call.value(rows)
