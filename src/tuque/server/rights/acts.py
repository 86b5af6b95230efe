"""Which commands and calls are acts of an administrator, and what the audit keeps (SPEC N9)."""

from typing import Final

from mypy_extensions import i64

from tuque.server.log.monitoring import cut_words, without_secrets
from tuque.server.state.client import Client
from tuque.server.state.iproto_connection import Wired
from tuque.server.state.state import Server
from tuque.server.users.account import Account
from tuque.wire.commands.bounds import CONTAINERS
from tuque.wire.commands.commands import Command
from tuque.wire.commands.rights import UNITS, Unit, unit_of

CATEGORIES: Final = ("admin", "dangerous")
IS_ACT: Final = [any(word in CATEGORIES for word in unit.categories) for unit in UNITS]
OK: Final = "ok"
BEGUN: Final = "begun"  # it takes more than one turn
UNSHOWN: Final = "LOADJOB"  # its word is a job with a body
SHOWN_OF_NONE: Final = 2  # words of a subcommand that there is not: a mistyped one may have a body


def note_act(
    s: Server, c: Client, account: Account, command: Command, args: list[bytes], written: i64
) -> None:
    """[N9] Keep the command of that user, if it is an act (N9.1); its reply begins at `written`."""
    unit = command.unit
    if unit is None:
        unit = unit_of(command.name, args)
    if not IS_ACT[unit.code]:
        return
    outcome = OK
    if len(c.out) > written and c.out[written].startswith(b"-"):
        outcome = first_word(c.out[written])
    elif c.chore is not None or c.is_blocked:
        outcome = BEGUN
    if command.name == UNSHOWN:
        words = args[:1]
    elif unit.row in CONTAINERS:
        words = cut_words(args[:SHOWN_OF_NONE])
    else:
        words = cut_words(without_secrets(s, args))
    keep(s, account.name, c.address, "resp", unit, words, outcome)


def note_call(s: Server, w: Wired, unit: Unit, word: bytes, outcome: str) -> None:
    """[N9] The same for a call over IPROTO."""
    if IS_ACT[unit.code]:
        keep(s, w.user.name, w.address, "iproto", unit, [word[:128]], outcome)


def keep(
    s: Server, user: bytes, where: str, door: str, unit: Unit, words: list[bytes], outcome: str
) -> None:
    """Hand the line over."""
    if s.audit is None:
        return
    told: dict[str, object] = {
        "user": user.decode("utf-8", "backslashreplace"),
        "from": where,
        "door": door,
        "act": unit.name,
        "words": [word.decode("utf-8", "backslashreplace") for word in words],
        "outcome": outcome,
    }
    s.audit.note(int(s.n.now_ms), told)


def first_word(reply: bytes) -> str:
    """The code of an error: `-NOPERM user ...`."""
    return reply[1:64].split(maxsplit=1)[0].decode("ascii", "replace")
