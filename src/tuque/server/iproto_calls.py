"""One request of IPROTO: what type it is, whether it may be, what answers it (SPEC I4, I5)."""

from typing import Final

from tuque.core.procedures import check
from tuque.server.iproto_conn import GUEST, Wired
from tuque.server.state import Server, log
from tuque.wire.iproto import (
    AUTH,
    CALL,
    CALL_16,
    E_ACCESS,
    E_MSGPACK,
    E_NO_PROC,
    E_NO_SPACE,
    E_NO_USER,
    E_PASSWORD,
    E_PROC,
    E_TYPE,
    EVAL,
    FUNCTION,
    ID,
    PING,
    SELECT,
    SPACE,
    SPACE_LAST,
    USER,
    IprotoError,
    Request,
    data_reply,
    error_reply,
    id_reply,
    ok_reply,
    proves,
)
from tuque.wire.msgpack import BIN, INT, STR

SCRAMBLE_BYTES: Final = 20
INTERNAL: Final = b"internal error, the log of the server says more"


def answer(s: Server, w: Wired, request: Request) -> None:
    """[I4] Run one request; what it says stands in `w.out`, now or when its waiting ends."""
    s.figures.commands += 1
    written = len(w.out)
    try:
        if len(request.error) > 0:
            raise IprotoError(E_MSGPACK, request.error)  # I2.5
        run(s, w, request)
    except IprotoError as error:
        w.out.append(error_reply(request.sync, error.code, error.text))
    except AssertionError:
        raise
    except Exception:
        log.error("internal error in a request of %s", w.address, exc_info=True)
        check(s.n)  # C3.12
        del w.out[written:]
        w.out.append(error_reply(request.sync, E_PROC, INTERNAL))


def run(s: Server, w: Wired, request: Request) -> None:
    """Answer a request by its type. Raises IprotoError."""
    type = request.type
    if type in (CALL, CALL_16):
        call(s, w, request, type == CALL_16)
    elif type == PING:
        w.out.append(ok_reply(request.sync))  # I4.1
    elif type == SELECT:
        select(w, request)
    elif type == AUTH:
        log_in(s, w, request)
        w.out.append(ok_reply(request.sync))
    elif type == ID:
        w.out.append(id_reply(request.sync))  # I4.6
    elif type == EVAL:
        raise IprotoError(E_PROC, b"there is no Lua here")
    else:
        raise IprotoError(E_TYPE, b"Unknown request type %d" % type)  # I4.7


def select(w: Wired, request: Request) -> None:
    """[I4] The tables of a schema are empty (I4.2), and there are no others (I4.3)."""
    space = request.body.get(SPACE)
    number = space.integer() if space is not None and space.kind == INT else 0
    if number > SPACE_LAST:
        raise IprotoError(E_NO_SPACE, b"Space '%d' does not exist" % number)
    w.out.append(data_reply(request.sync, []))


def log_in(s: Server, w: Wired, request: Request) -> None:
    """[I5] ON REQUEST AUTH: be that user from now on, or guest after a failure (I5.4)."""
    name = request.text(USER, b"user name")
    told = request.arguments(2)
    user = s.users.by_name.get(name)
    s.trust(w, s.users.guest)  # I5.4
    if user is None:
        raise IprotoError(E_NO_USER, b"User '%s' is not found" % name)
    if len(told) == 0 and name == GUEST:
        return  # I5.3
    if len(told) < 2:
        raise IprotoError(E_MSGPACK, b"Invalid MsgPack - authentication request body")
    if told[1].kind != STR and told[1].kind != BIN:
        raise IprotoError(E_MSGPACK, b"Invalid MsgPack - authentication request body")
    scramble = told[1].payload()
    if len(scramble) != SCRAMBLE_BYTES:
        raise IprotoError(E_MSGPACK, b"Invalid MsgPack - invalid scramble size")
    if len(user.secret) == 0 or not proves(scramble, user.secret, w.salt):
        raise IprotoError(E_PASSWORD, b"Incorrect password supplied for user '%s'" % name)
    s.trust(w, user)  # I5.2


def call(s: Server, w: Wired, request: Request, is_16: bool) -> None:
    """[I4] ON REQUEST CALL."""
    name = request.text(FUNCTION, b"function name")
    if not w.user.is_admin:
        text = b"Execute access to function '%s' is denied for user '%s'" % (name, w.user.name)
        raise IprotoError(E_ACCESS, text)
    raise IprotoError(E_NO_PROC, b"Procedure '%s' is not defined" % name)
