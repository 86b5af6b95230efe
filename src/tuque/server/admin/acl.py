"""ACL: users, their rights, and what was denied to them (SPEC N3, N5, N7)."""

from __future__ import annotations

import secrets
from typing import Final

from tuque.core.model.timers import TURN_WORK
from tuque.server.access.change import (
    OPEN_DOOR,
    Reading,
    Writing,
    end_sessions,
    opens_door,
    take_users,
)
from tuque.server.access.login import Slow
from tuque.server.access.rights import denied_queue, unit_error
from tuque.server.access.tenant import put_prefix
from tuque.server.replies.errors import reply_help
from tuque.server.replies.long_commands import begin
from tuque.server.start.bus import apply_doors
from tuque.server.state.client import Client
from tuque.server.state.server import Server
from tuque.server.users.passwords import Work
from tuque.server.users.tenants import Denial
from tuque.server.users.users import ALL, DEFAULT, Account
from tuque.server.users.users_file import (
    USERS_MAX,
    WordError,
    apply_words,
    check_name,
    is_slow,
    line_of,
)
from tuque.wire.commands.arguments import (
    ArgError,
    Misuse,
    WrongWords,
    ranged,
)
from tuque.wire.commands.commands import CATEGORIES, UNITS, unit_of
from tuque.wire.proto.resp import Status

MANY_USERS: Final = b"ERR there are %d users, the most a node keeps" % USERS_MAX
CHANGED: Final = b"ERR the user was changed meanwhile: try again"

NO_USER: Final = b"ERR there is no user '%s'"
KEEPS_DEFAULT: Final = b"ERR the user 'default' cannot be deleted: ACL SETUSER default off"
NO_CATEGORY: Final = b"ERR there is no category '%s'"
NO_COMMAND: Final = b"ERR there is no command '%s'"
NO_FILE: Final = b"ERR there is no users-file: name one in the configuration"
BITS: Final = 256
BITS_MAX: Final = 4_096
BAD_COUNT: Final = b"ERR the count of ACL LOG must be a number from 0 to 1073741824"
BAD_BITS: Final = b"ERR ACL GENPASS takes a number of bits from 1 to 4096"
LOG_SHOWN: Final = 10


# ---- SETUSER, LOAD and SAVE wait for a thread (SPEC N3, N5)


class Changing(Work):
    """A copy of a user, changed by words."""

    def __init__(self, account: Account, words: list[bytes]) -> None:
        super().__init__()
        self.account = account
        self.words = words
        self.error = ""

    def run(self) -> None:
        """Slow if passwords are among the words."""
        try:
            apply_words(self.account, self.words)
        except WordError as error:
            self.error = str(error)


class SetUser(Slow):
    """ACL SETUSER."""

    def __init__(self, s: Server, c: Client, name: bytes, words: list[bytes]) -> None:
        super().__init__(s, c)
        self.user = name
        self.known = s.acl.by_name.get(name)
        self.before = None if self.known is None else self.known.rules
        copy = Account(name) if self.known is None else self.known.copy()
        self.changing = Changing(copy, words)
        if not is_slow(words):
            self.changing.run()
            self.changing.is_done = True
            self.work = self.changing
        self.goes_on = True

    def step(self, room: int) -> bool:
        """Wait for the copy; then it takes the place of the user."""
        if not self.is_worked(self.changing):
            return False
        acl = self.s.acl
        if self.changing.error:
            text = f"ERR Error in ACL SETUSER modifier {self.changing.error}"
            raise ArgError(text.encode())
        known = acl.by_name.get(self.user)
        if known is not self.known or (known is not None and known.rules is not self.before):
            raise ArgError(CHANGED)
        if known is None and len(acl.by_name) >= USERS_MAX:
            raise ArgError(MANY_USERS)
        account = self.changing.account
        if account.name == DEFAULT and opens_door(self.s, account):
            raise ArgError(b"ERR " + OPEN_DOOR.encode())
        is_less = acl.put(account)
        self.s.settle_guest()
        apply_doors(self.s)
        if is_less:
            less = [acl.by_name[self.user]]
            if known is not None:
                less.append(known)  # of another tenant than before (N10.6)
            end_sessions(self.s, less, self.client)
        return True

    def tell(self) -> None:
        """OK."""
        self.client.ok()


class LoadUsers(Slow):
    """ACL LOAD."""

    def __init__(self, s: Server, c: Client) -> None:
        super().__init__(s, c)
        self.reading = Reading(s.acl.path, s.cfg.protected_mode)
        self.goes_on = True

    def step(self, room: int) -> bool:
        """Wait for the file; then take its users."""
        if not self.is_worked(self.reading):
            return False
        take_users(self.s, self.reading, self.client)
        if self.reading.error:
            raise ArgError(b"ERR " + self.reading.error.encode())
        return True

    def tell(self) -> None:
        """OK."""
        self.client.ok()


class SaveUsers(Slow):
    """ACL SAVE."""

    def __init__(self, s: Server, c: Client) -> None:
        super().__init__(s, c)
        self.writing = Writing(s.acl.path, list(s.acl.by_name.values()))
        self.goes_on = True

    def step(self, room: int) -> bool:
        """Wait for the disk."""
        if not self.is_worked(self.writing):
            return False
        if self.writing.error:
            raise ArgError(b"ERR " + self.writing.error.encode())
        self.s.acl.stamp = self.writing.stamp
        return True

    def tell(self) -> None:
        """OK."""
        self.client.ok()


# ---- The command, and its other subcommands (SPEC N3, N7)


def cmd_acl(s: Server, c: Client, args: list[bytes]) -> None:
    """[N3] ACL subcommand [argument ...] (N3.1)."""
    word = args[1].upper()
    count = len(args)
    if word == b"WHOAMI" and count == 2:
        c.reply(DEFAULT if c.user is None else c.user.name)
    elif word == b"SETUSER" and count > 2:
        set_user(s, c, args)
    elif word == b"GETUSER" and count == 3:
        get_user(s, c, args[2])
    elif word == b"DELUSER" and count > 2:
        delete_users(s, c, args[2:])
    elif word in (b"LIST", b"USERS") and count == 2:
        list_users(s, c, word == b"LIST")
    elif word == b"CAT" and count < 4:
        show_categories(c, args[2:])
    elif word == b"LOG" and count < 4:
        show_log(s, c, args[2:])
    elif word == b"DRYRUN" and count > 3:
        dry_run(s, c, args[2], args[3:])
    elif word == b"GENPASS" and count < 4:
        make_password(c, args[2:])
    elif word in (b"SAVE", b"LOAD") and count == 2:
        if s.acl.path == "":
            raise ArgError(NO_FILE)
        begin(s, c, SaveUsers(s, c) if word == b"SAVE" else LoadUsers(s, c))
    elif word == b"HELP" and count == 2:
        reply_help(s, c, b"ACL")
    else:
        raise WrongWords(b"ACL")


def set_user(s: Server, c: Client, args: list[bytes]) -> None:
    """ACL SETUSER name [word ...]: all words apply, or none (N3.3)."""
    try:
        check_name(args[2])
    except WordError as error:
        raise ArgError(b"ERR " + str(error).encode()) from None
    s.n.work += len(args)
    begin(s, c, SetUser(s, c, args[2], args[3:]))


def named(s: Server, name: bytes) -> Account:
    """The user of that name, or raise."""
    account = s.acl.by_name.get(name)
    if account is None:
        raise ArgError(NO_USER % name[:128])
    return account


def get_user(s: Server, c: Client, name: bytes) -> None:
    """ACL GETUSER name: what Redis clients expect (N3.6)."""
    account = s.acl.by_name.get(name)
    if account is None:
        c.reply(None)
        return
    flags = [b"on" if account.is_on else b"off"]
    for is_set, word in (
        (account.secrets.is_free, b"nopass"),
        (account.secrets.is_wired, b"iproto"),
        (ALL in account.patterns, b"allkeys"),
        (account.has_all, b"allcommands"),
    ):
        if is_set:
            flags.append(word)
    fields: dict[str, object] = {
        "flags": flags,
        "passwords": [one.encode() for one in account.secrets.hashes],
        "commands": " ".join(account.rules or ["-@all"]),
        "keys": b" ".join([b"~" + one for one in account.patterns]),
        "channels": "",
        "selectors": [],
    }
    if len(account.tenant) > 0:
        fields["tenant"] = account.tenant
        fields["quotas"] = [b"%s=%d" % one for one in sorted(account.quotas.items())]
    c.reply(fields)


def delete_users(s: Server, c: Client, names: list[bytes]) -> None:
    """ACL DELUSER name [name ...]: how many there were; their connections end (N3.5)."""
    if DEFAULT in names:
        raise ArgError(KEEPS_DEFAULT)
    gone: list[Account] = []
    for name in names:
        account = s.acl.drop(name)
        if account is not None:
            gone.append(account)
    s.settle_guest()
    s.n.work += len(names) + len(s.clients) // 10
    c.reply(len(gone))
    end_sessions(s, gone, c)


def list_users(s: Server, c: Client, is_long: bool) -> None:
    """ACL LIST, USERS."""
    s.n.work += min(len(s.acl.by_name), TURN_WORK)
    if is_long:
        c.reply([line_of(one) for one in s.acl.by_name.values()])
    else:
        c.reply(list(s.acl.by_name))


def show_categories(c: Client, words: list[bytes]) -> None:
    """ACL CAT [category]: the categories, or the units of one."""
    if not words:
        c.reply([name.encode() for name in CATEGORIES])
        return
    name = words[0].decode("ascii", "replace").lower().removeprefix("@")
    if name not in CATEGORIES:
        raise ArgError(NO_CATEGORY % words[0][:128])
    c.reply([unit.name.encode() for unit in UNITS if name in unit.categories])


def show_log(s: Server, c: Client, words: list[bytes]) -> None:
    """ACL LOG [count|RESET]: the latest denials, newest first (N7.1)."""
    denials = s.acl.denials
    if words and words[0].upper() == b"RESET":
        denials.clear()
        c.ok()
        return
    count = int(ranged(words[0], 0, 1 << 30, BAD_COUNT)) if words else LOG_SHOWN
    rows = [log_row(s, entry) for entry in list(denials.entries)[:count]]
    s.n.work += len(rows)
    c.reply(rows)


def log_row(s: Server, entry: Denial) -> dict[str, object]:
    """One entry, with the fields of Redis."""
    return {
        "count": int(entry.count),
        "reason": entry.reason,
        "context": "toplevel",
        "object": entry.what,
        "username": entry.user,
        "age-seconds": f"{(s.n.now_ms - entry.last_ms) / 1000:.3f}",
        "client-info": b"addr=" + entry.client,
        "entry-id": int(entry.number),
        "timestamp-created": int(entry.first_ms),
        "timestamp-last-updated": int(entry.last_ms),
    }


def dry_run(s: Server, c: Client, name: bytes, words: list[bytes]) -> None:
    """ACL DRYRUN name command [argument ...]: OK, or the error it would get; nothing runs."""
    account = named(s, name)
    command = s.table.get(words[0].upper())
    if command is None:
        raise ArgError(NO_COMMAND % words[0][:128])
    if not command.takes(len(words)):
        raise ArgError(b"ERR wrong number of arguments for '%s' command" % command.wire_name)
    s.n.work += len(words)
    unit = unit_of(command.name, words)
    if not account.granted[unit.code]:
        c.reply(unit_error(account, unit))
        return
    if len(account.prefix) > 0:
        put_prefix(s, account, unit, words)
    denied = None if account.sees_all else denied_queue(s, account, unit, words)
    c.reply(Status("OK") if denied is None else denied.error(name))


def make_password(c: Client, words: list[bytes]) -> None:
    """ACL GENPASS [bits]: a password that nobody guesses."""
    if len(words) > 1:
        raise Misuse(words[1])
    bits = int(ranged(words[0], 1, BITS_MAX, BAD_BITS)) if words else BITS
    digits = (bits + 3) // 4
    c.reply(secrets.token_hex((digits + 1) // 2)[:digits])
