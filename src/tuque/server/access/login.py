"""Log-ins: each waits for its turn and for the proof of its password, never the loop (SPEC N4)."""

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from tuque.core.queues.procedures import FAR
from tuque.logtext import facts
from tuque.server.access.tenant import no_room
from tuque.server.log.log import say_once, warn_once
from tuque.server.replies.long_commands import begin
from tuque.server.state.client import Client, Connection, LongCommand
from tuque.server.state.notices import leave_notices
from tuque.server.state.server import Server
from tuque.server.users.passwords import Work, fits
from tuque.server.users.tenants import AUTH
from tuque.server.users.users import DEFAULT, Account
from tuque.wire.commands.arguments import ArgError

NO_PASSWORD: Final = b"ERR Client sent AUTH, but no password is set"
BAD_PASSWORD: Final = b"ERR invalid password"
WRONGPASS: Final = b"WRONGPASS no such user, not its password, or the user is off"
CROWDED: Final = b"ERR too many log-ins wait for their turn: try again later"
TOO_STRANGE: Final = b"NOAUTH too many commands before the log-in"
STRANGE_MAX: Final = 20  # commands of a connection before its log-in, AUTH among them
WAITING_MAX: Final = 1_000  # log-ins at once
# proved against for a name that is unknown: it takes as long
NOBODY: Final = "scrypt:14:8:1:" + 16 * "00" + ":" + 32 * "00"

Then = Callable[[Server, Client, list[bytes]], None]


def host_of(c: Connection) -> bytes:
    """[N6] The address without its port; of IPv6 the network of 64 bits (N6.2)."""
    host = c.address.rpartition(":")[0]
    if ":" not in host:
        return host.encode() or b"unix"
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return host.encode()
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped).encode()
    return found.packed[:8].hex(":", 2).encode()


@final
class Proof(Work):
    """One password against the hashes of a user."""

    def __init__(self, hashes: list[str], password: bytes) -> None:
        super().__init__()
        self.hashes = hashes
        self.password = password
        self.is_right = False

    def run(self) -> None:
        """Slow."""
        for text in self.hashes or [NOBODY]:
            if fits(self.password, text) and len(self.hashes) > 0:
                self.is_right = True
                return


@mypyc_attr(allow_interpreted_subclasses=True)
class Slow(LongCommand):
    """A command that waits for the thread that works on passwords."""

    def __init__(self, s: Server, c: Client) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.work: Work | None = None

    def is_worked(self, work: Work) -> bool:
        """Have the work done; False: not yet. Raises ArgError if the line is full."""
        if self.work is None:
            hasher = self.s.acl.hasher
            if hasher is None:
                work.run()
                work.is_done = True
            elif not hasher.ask(work):
                raise ArgError(CROWDED)
            self.work = work
        if self.work.is_done:
            return True
        self.wake_ms = FAR
        return False


@final
class Place:
    """[N6] Where a log-in of a connection is in its line, if there is one (N6.1).

    `login-timeout` stands still meanwhile: the connection waits for the node (N6.4).
    """

    def __init__(self, s: Server, c: Connection, user: bytes) -> None:
        self.s = s
        self.c = c
        self.turn = s.acl.guesses.join_line(host_of(c), user, s.n.now_ms)
        if self.turn is not None:
            c.line_ms = s.n.now_ms
            if self.comes_ms() > s.n.now_ms:
                s.acl.denials.late += 1

    def comes_ms(self) -> i64:
        """Take the turn if it has come: now; else when to ask again."""
        now_ms = self.s.n.now_ms
        if self.turn is None:
            return now_ms
        at_ms = self.turn.comes_ms(now_ms)
        if at_ms <= now_ms:
            self.leave()
        return at_ms

    def leave(self) -> None:
        """The turn has come, or the connection has gone: those behind move up."""
        if self.turn is None:
            return
        self.turn.leave()
        self.turn = None
        if self.c.stranger_ms > 0:
            self.c.stranger_ms += self.s.n.now_ms - self.c.line_ms
        self.c.line_ms = 0


@final
class LogIn(Slow):
    """AUTH, or HELLO with AUTH; what follows it runs when the client is known."""

    def __init__(
        self, s: Server, c: Client, user: bytes, password: bytes, then: Then, args: list[bytes]
    ) -> None:
        super().__init__(s, c)
        self.user = user
        self.password = password
        self.then = then
        self.args = args
        self.place = Place(s, c, user)
        self.proof: Proof | None = None
        self.is_counted = True
        s.acl.waiting += 1

    def step(self, room: i64) -> bool:
        """Wait for the turn, then for the proof."""
        try:
            is_over = self.look()
        except ArgError:
            self.drop()
            raise
        if is_over:
            self.drop()
        return is_over

    def look(self) -> bool:
        """Whether the client has logged in. Raises ArgError if it cannot."""
        s = self.s
        at_ms = self.place.comes_ms()
        self.is_paced = at_ms > s.n.now_ms  # who stops sending gives up the place
        if self.is_paced:
            self.wake_ms = at_ms  # N6.1
            return False
        account = s.acl.by_name.get(self.user)
        if account is not None and self.is_known(account):
            self.enter(account)
            return True
        hashes: list[str] = [] if account is None else account.secrets.hashes
        if len(hashes) == 0 and self.user == DEFAULT:
            raise self.failed()
        if self.proof is None:
            self.proof = Proof(list(hashes), self.password)
        if not self.is_worked(self.proof):
            return False
        if account is None or not self.proof.is_right or self.proof.hashes != hashes:
            raise self.failed()  # or changed meanwhile
        account.secrets.note_proved(s.acl.key, self.password)
        self.enter(account)
        return True

    def is_known(self, account: Account) -> bool:
        """Whether the password needs no slow proof (N4.2)."""
        secrets = account.secrets
        if secrets.needs_none() or secrets.fits_plain(self.password):
            return True
        return secrets.is_proved(self.s.acl.key, self.password)

    def enter(self, account: Account) -> None:
        """The client is that user from now on; nothing of another user's stays."""
        s, c = self.s, self.client
        if not account.is_on:
            raise self.failed(is_guess=False)
        full = no_room(s, c.user, account)
        if full is not None:
            raise ArgError(full)  # N11.4
        s.acl.guesses.proved(host_of(c), self.user)
        if c.user is not account:
            if c.user is not None:
                forget_user(s, c)
            c.user = account
        c.stranger_ms = 0
        c.strange = 0

    def failed(self, is_guess: bool = True) -> ArgError:
        """[C5] The session is not logged in; its error (C5.3)."""
        log_out(self.s, self.client)
        note_failure(self.s, self.client, self.user, is_guess)
        return ArgError(BAD_PASSWORD if self.user == DEFAULT else WRONGPASS)

    def drop(self) -> None:
        """It is over, or the client has gone before its turn."""
        if self.is_counted:
            self.is_counted = False
            self.s.acl.waiting -= 1
            self.place.leave()

    def tell(self) -> None:
        """Go on with the command."""
        self.then(self.s, self.client, self.args)


def is_one_too_many(s: Server, c: Client) -> bool:
    """[N6] Count a command of a client that must log in; after too many it is closed (N6.6)."""
    c.strange += 1
    if c.strange <= STRANGE_MAX:
        return False
    warn_once(s.n.now_ms, c.address, f"more than {STRANGE_MAX} commands before its log-in")
    s.figures.strangers_closed += 1
    c.error(TOO_STRANGE)
    c.is_closing = True
    s.touch(c)
    return True


def log_in(
    s: Server, c: Client, name: bytes, password: bytes, then: Then, args: list[bytes]
) -> None:
    """[N4] Log the client in, then go on with the command; or raise ArgError (N4.1)."""
    if name == DEFAULT and s.acl.newcomer is not None:
        raise ArgError(NO_PASSWORD)
    if s.acl.waiting >= WAITING_MAX and not s.acl.guesses.is_trusted(host_of(c), name):
        raise ArgError(CROWDED)
    begin(s, c, LogIn(s, c, name, password, then, args))


def log_out(s: Server, c: Client) -> None:
    """Back to a new connection's user, or none."""
    if c.user is not s.acl.newcomer:
        forget_user(s, c)
    c.user = s.acl.newcomer
    if c.user is None and c.stranger_ms == 0:
        c.stranger_ms = s.n.now_ms


def forget_user(s: Server, c: Client) -> None:
    """What the connection had as its user ends: MONITOR, subscriptions, a session of tubes."""
    if c.is_monitor:
        c.is_monitor = False
        s.monitors.remove(c)
    leave_notices(s, c, list(c.watched))
    s.leave_tubes(c.number)


def note_failure(s: Server, c: Connection, name: bytes, is_guess: bool = True) -> None:
    """[N6] A log-in failed: slow down, count, keep for ACL LOG, log at a bounded rate (N6.3).

    The right password of a user that is off is no guess (N6.8).
    """
    now_ms = s.n.now_ms
    if is_guess:
        s.acl.guesses.failed(host_of(c), name, now_ms)
    client = c.address.encode()
    s.acl.denials.note(AUTH, b"AUTH", name, client, now_ms, s.cfg.acllog_max_len)
    say_once(
        now_ms,
        "log-ins of user %(user)s from %(host)s fail",
        facts(
            "login_failed",
            user=name[:128].decode("utf-8", "backslashreplace"),
            host=host_of(c).decode(),
        ),
    )


def wake_slow(s: Server) -> None:
    """The thread has finished something: who waited for it goes on."""
    hasher = s.acl.hasher
    if hasher is None:
        return
    hasher.bell.quiet()
    for long_command in s.resting:
        if (
            isinstance(long_command, Slow)
            and long_command.work is not None
            and long_command.work.is_done
        ):
            long_command.wake_ms = 0
