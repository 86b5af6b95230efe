"""Users change while they are connected: their sessions and the file follow (SPEC N3, N5)."""

from typing import Final, final

from tuque.logtext import facts
from tuque.server.access.login import LogIn, wake_slow
from tuque.server.log.log import log
from tuque.server.state.client import Client, Wired
from tuque.server.state.server import Server
from tuque.server.users.passwords import Work
from tuque.server.users.users import DEFAULT, Account
from tuque.server.users.users_file import (
    UsersFileError,
    read_users,
    write_users,
)
from tuque.smallfile import stamp_of

OPEN_DOOR: Final = (
    "this node is open to other machines: 'default' needs a password, or protected-mode no"
)
NO_DEFAULT: Final = (
    "no line for `default`, which must log in now: a file may be read while it is written, "
    "so say `user default ...`"
)
LOOK_MS: Final = 1_000  # between two looks at the file


def end_sessions(s: Server, accounts: list[Account], caller: Client | None = None) -> None:
    """[N3] These users may do less now: close what they have no right to any more (N3.5)."""
    for c in list(s.clients.values()):
        if c.user is None or c.user not in accounts:
            continue
        is_waiting = c.is_blocked or c.is_monitor or len(c.watched) > 0
        if (
            c.user.is_gone
            or not c.user.is_on
            or (is_waiting and not isinstance(c.long_command, LogIn))
        ):
            c.is_closing = True
            if c is not caller:
                s.doomed.append(c)
                s.unblock(c)
            else:
                s.touch(c)
    for w in list(s.wired.values()):
        if w.user.account is not None and w.user.account in accounts:
            end_wired(s, w, w.user.account)


def end_wired(s: Server, w: Wired, account: Account) -> None:
    """The same for an IPROTO connection."""
    if account.is_gone or not account.is_on or w.is_waiting():
        w.is_closing = True
        s.doomed.append(w)
        s.unwait(w)


@final
class Reading(Work):
    """The users file, read and understood."""

    def __init__(self, path: str, is_guarded: bool) -> None:
        super().__init__()
        self.path = path
        self.is_guarded = is_guarded
        self.stamp = (0, 0, 0)
        self.accounts: list[Account] = []
        self.error = ""

    def run(self) -> None:
        """Slow: there may be many users."""
        self.stamp = stamp_of(self.path)
        try:
            self.accounts = read_users(self.path, self.is_guarded)
        except UsersFileError as error:
            self.error = str(error)


@final
class Writing(Work):
    """The users file, written and synced."""

    def __init__(self, path: str, accounts: list[Account]) -> None:
        super().__init__()
        self.path = path
        self.accounts = [one.copy() for one in accounts]
        self.stamp = (0, 0, 0)
        self.error = ""

    def run(self) -> None:
        """Slow: the disk."""
        try:
            write_users(self.path, self.accounts)
        except UsersFileError as error:
            self.error = str(error)
        self.stamp = stamp_of(self.path)


def opens_door(s: Server, account: Account | None) -> bool:
    """[N1] Whether this `default` makes strangers of other machines a user (C1.3, N1.4)."""
    if not s.cfg.is_open or not s.cfg.protected_mode or len(s.cfg.requirepass) > 0:
        return False
    return account is None or (account.is_on and account.secrets.needs_none())


def take_users(s: Server, reading: Reading, caller: Client | None = None) -> None:
    """[N5] Take the users of the file, all or none, and log it (N5.2)."""
    s.acl.stamp = reading.stamp
    default = [one for one in reading.accounts if one.name == DEFAULT]
    if not reading.error and not default and s.acl.newcomer is None:
        reading.error = f"{reading.path}: {NO_DEFAULT}"
    if not reading.error and opens_door(s, default[0] if default else None):
        reading.error = f"{reading.path}: {OPEN_DOOR}"
    if reading.error:
        log.error(
            "users-file: %(reason)s; the users stay as they were",
            facts("users_refused", reason=reading.error),
        )
        return
    end_sessions(s, s.acl.replace(reading.accounts), caller)
    s.settle_guest()
    log.info(
        "users-file %(path)s: %(count)d users",
        facts("users_loaded", path=reading.path, count=len(s.acl.by_name)),
    )


def watch_users(s: Server) -> None:
    """[N5] Read the file again when it has changed (N5.3); called by housekeeping."""
    acl = s.acl
    if acl.path == "" or acl.look_ms > s.n.now_ms:
        return
    acl.look_ms = s.n.now_ms + LOOK_MS
    if isinstance(acl.reading, Reading) or stamp_of(acl.path) == acl.stamp:
        return
    reading = Reading(acl.path, s.cfg.protected_mode)
    if acl.hasher is None:
        reading.run()
        take_users(s, reading)
    elif acl.hasher.ask(reading):
        acl.reading = reading


def on_bell(s: Server) -> None:
    """The thread of slow work has finished something."""
    wake_slow(s)
    reading = s.acl.reading
    if isinstance(reading, Reading) and reading.is_done:
        s.acl.reading = None
        take_users(s, reading)
