"""Whether a user may run a command or a call, and what the audit keeps of it (SPEC N2, N7-N9)."""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.job_id import is_job_id, of_url
from tuque.server.access.tenant import over_quota, put_prefix
from tuque.server.log.slowlog import cut_words, without_secrets
from tuque.server.state.client import ADMINISTERS, ORDINARY, SPARE, Client, Connection, Wired
from tuque.server.state.server import Server
from tuque.server.users.tenants import COMMAND, QUEUE
from tuque.server.users.users import Account
from tuque.wire.commands.arguments import header_pairs
from tuque.wire.commands.commands import (
    PAIRS,
    QUEUES_HEADER,
    UNITS,
    Command,
    Unit,
    queues_in,
    unit_of,
)
from tuque.wire.commands.rows import CONTAINERS

NOAUTH: Final = b"NOAUTH Authentication required."
NO_UNIT: Final = b"NOPERM user '%s' may not use %s: it lacks +%s, or @%s"
NO_UNIT_HERE: Final = b"NOPERM user '%s' may not use %s: it is not for users of a tenant"
NO_QUEUE: Final = b"NOPERM user '%s' has no right to the queue '%s': no pattern of it fits"
NO_QUEUE_OF: Final = b"NOPERM user '%s' has no right to the queue of '%s': no pattern of it fits"
NO_NAME: Final = (
    b"NOPERM user '%s' has no right to an app or a transaction of the name '%s': "
    b"no pattern of it fits"
)
NO_TOPIC: Final = b"NOPERM user '%s' has no right to the topic '%s': no pattern of it fits"
NO_AUTH_NEEDED: Final = [b"auth", b"hello", b"quit", b"reset"]
REPEATS_IDS: Final = "WAITJOB"  # in its reply
TOPIC: Final = "TOPIC "
LIST_OF_TOPICS: Final = "TOPIC LIST"  # its option names a topic
SHOWN: Final = 128  # bytes of a name in an error
IDS_MAX: Final = 1_100  # words looked at here; longer commands look at each id as they go

# what a connection beyond maxclients may say (C1.12): acts of these groups, and what precedes them
OPERATING: Final = ("server", "connection")
BEYOND: Final = ("AUTH", "HELLO", "QUIT", "RESET", "CLIENT", "COMMAND", "INFO")
FULL: Final = b"ERR max number of clients reached"

CATEGORIES: Final = ("admin", "dangerous")
IS_ACT: Final = [any(word in CATEGORIES for word in unit.categories) for unit in UNITS]
OK: Final = "ok"
BEGUN: Final = "begun"  # it takes more than one turn
UNSHOWN: Final = "LOADJOB"  # its word is a job with a body
SHOWN_OF_NONE: Final = 2  # words of a subcommand that there is not: a mistyped one may have a body


def denial(s: Server, c: Client, command: Command, args: list[bytes]) -> bytes | None:
    """[C3, N2] Why the client may not run the command (C3.4, N2.3); None: it may."""
    account = c.user
    if account is None:
        return None if command.wire_name in NO_AUTH_NEEDED else NOAUTH
    if account.is_full:
        return None
    unit = command.unit
    if unit is None:
        unit = unit_of(command.name, args)
    if not account.granted[unit.code]:
        return deny_unit(s, c, account, unit)
    if len(account.prefix) > 0:
        came = list(args) if unit.row == REPEATS_IDS else None
        put_prefix(s, account, unit, args)
        if came is not None:
            c.said = {args[i]: of_url(came[i]) for i in range(len(came)) if args[i] != came[i]}
        if account.sees_own and unit.is_plain:
            return over_quota(s, account, unit, args) if unit.is_adding else None
    if account.sees_all or len(unit.places) == 0:
        return None
    seen = account.seen  # most answers are known; the calls below cost more
    if len(args) <= unit.simple_words and len(args) > unit.queue_at[0]:
        if seen.get(args[unit.queue_at[0]], False):
            return over_quota(s, account, unit, args) if account.limits(unit) else None
    elif unit.jobs_from == 1 and len(args) == 2:
        job = s.n.jobs.get(args[1])
        if job is not None and seen.get(job.queue, False):
            return None
    denied = denied_queue(s, account, unit, args)
    if denied is None:
        return over_quota(s, account, unit, args) if account.limits(unit) else None
    note(s, c, account, QUEUE, denied.queue)
    return denied.error(account.name)


def may_stay(s: Server, c: Client, command: Command, args: list[bytes]) -> bool:
    """[C1] Whether a connection beyond maxclients may run the command, to which it has the right;
    if not, it is closed (C1.12).
    """
    if len(s.clients) + len(s.wired) <= s.cfg.maxclients:
        c.place = ORDINARY
        return True
    unit = unit_of(command.name, args) if command.unit is None else command.unit
    if command.group in OPERATING and IS_ACT[unit.code]:
        c.place = ADMINISTERS
        return True
    if command.name in BEYOND:
        return True
    s.figures.rejected += 1
    c.place = SPARE  # while it lingers, it makes room
    c.is_closing = True
    c.lingers = True
    return False


@final
class Denied:
    """A queue that the user may not see, and what names it to the user."""

    def __init__(
        self,
        queue: bytes,
        of: bytes | None = None,
        is_name: bool = False,
        is_topic: bool = False,
    ) -> None:
        self.queue = queue
        self.is_topic = is_topic
        self.is_name = is_name  # of an app or a transaction (N2.8)
        self.of = of  # a job, a group, a transaction; none: the command names the queue

    def error(self, user: bytes) -> bytes:
        """[N2] The reply: it names a queue only if the command did (N2.7)."""
        shown = self.queue if self.of is None else self.of
        if len(shown) > SHOWN:
            shown = shown[:SHOWN] + b"..."
        if self.is_topic:
            return NO_TOPIC % (user, shown)
        if self.is_name:
            return NO_NAME % (user, shown)
        return (NO_QUEUE if self.of is None else NO_QUEUE_OF) % (user, shown)


def denied_queue(s: Server, account: Account, unit: Unit, args: list[bytes]) -> Denied | None:
    """The first queue that the command names and the user may not see; None: there is none."""
    if len(args) <= unit.simple_words:
        at = unit.queue_at[0]
        if at >= len(args) or account.may_see(args[at]):
            return None
        return Denied(args[at])
    seen = account.seen
    for queue in unit.queues(args):
        if not seen.get(queue, False) and not account.may_see(queue):
            return Denied(queue, is_topic=unit.row == LIST_OF_TOPICS)
    for name in unit.next_queues(args):
        if not account.may_see(account.full(name)):
            return Denied(name)  # N2.9
    if unit.option == PAIRS:
        denied = denied_of_job(s, account, args[unit.jobs_from])
        if denied is not None:
            return denied
    if unit.own_at > 0:
        for name in unit.own_names(args):
            if not account.may_see(name):
                is_topic = unit.row.startswith(TOPIC)
                return Denied(name, is_name=True, is_topic=is_topic)  # N2.8
    if unit.jobs_from > 0 and len(args) <= IDS_MAX:
        i = unit.jobs_from
        while i < len(args):
            of = queue_of(s, args[i])
            if of is not None and not account.may_see(of):
                return Denied(of, args[i])
            if unit.is_one_job:
                break
            i += 1
    if unit.worker_at > 0 and unit.worker_at < len(args):
        return denied_of_worker(s, account, args[unit.worker_at])
    if unit.group_at > 0 and unit.group_at < len(args):
        return denied_in_group(s, account, args[unit.group_at])
    if unit.stage_at > 0:
        return denied_stage(s, account, args)
    return None


def denied_of_job(s: Server, account: Account, id: bytes) -> Denied | None:
    """[N2] A queue to which the job goes on, and that the user may not see (N2.9)."""
    job = s.n.jobs.get(id)
    if job is None:
        job = s.n.jobs.get(of_url(id)) if len(id) > 0 and not is_job_id(id) else None
    work = None if job is None else s.n.life.by_id.get(job.id)
    if work is None:
        return None
    words = header_pairs(work.headers)
    for i in range(0, len(words), 2):
        if words[i] == QUEUES_HEADER:
            for name in queues_in(words[i + 1]):
                if not account.may_see(account.full(name)):
                    return Denied(name, id)
    if len(work.terms.dead) > 0 and not account.may_see(work.terms.dead):
        return Denied(work.terms.dead, id)
    return None


def queue_of(s: Server, id: bytes) -> bytes | None:
    """The queue of a job that this node knows, or whose outcome it keeps (N2.4)."""
    job = s.n.jobs.get(id)
    if job is None and len(id) > 0 and not is_job_id(id):
        id = of_url(id)
        job = s.n.jobs.get(id)
    if job is not None:
        return job.queue
    outcome = s.n.life.kept.get(id)
    return None if outcome is None or len(outcome.queue) == 0 else outcome.queue


def denied_of_worker(s: Server, account: Account, name: bytes) -> Denied | None:
    """A queue of the worker that the user may not see; a lost one's name is free (O11.2)."""
    hand = s.workers.by_name.get(name)
    if hand is not None and not hand.is_lost(s.n.now_ms):
        for queue in hand.reported.queues:
            if not account.may_see(queue):
                return Denied(queue, name)
    return None


def denied_in_group(s: Server, account: Account, name: bytes) -> Denied | None:
    """A queue of the group that the user may not see."""
    group = s.n.leases.groups.get(name)
    if group is not None:
        for queue in group.queues:
            if not account.may_see(queue):
                return Denied(queue, name)
    return None


def denied_stage(s: Server, account: Account, args: list[bytes]) -> Denied | None:
    """A queue of the transaction, or of the batch that PUBLISH acks, that the user may not see."""
    at: i64 = 3
    if len(args) > 7 and args[3].upper() == b"ACK":
        at = 7
        denied = denied_in_group(s, account, args[4])
        if denied is not None:
            return denied
    if at >= len(args):
        return None
    attempts = s.n.staging.txns.get(args[at])
    if attempts is not None:
        for attempt in attempts.values():
            for name in attempt.queues:
                if not account.may_see(name):
                    return Denied(name, args[at])
    return None


def deny_unit(s: Server, c: Connection, account: Account, unit: Unit) -> bytes:
    """Note the denial; its error (N2.7)."""
    note(s, c, account, COMMAND, unit.name.encode())
    return unit_error(account, unit)


def unit_error(account: Account, unit: Unit) -> bytes:
    """[N2] The error of a user who may not use the unit (N2.7)."""
    shown = unit.row.encode()
    if len(account.prefix) > 0 and not unit.is_for_tenants:
        return NO_UNIT_HERE % (account.name, shown)  # N10.4
    return NO_UNIT % (account.name, shown, unit.name.encode(), b" or @".join(words_of(unit)))


def words_of(unit: Unit) -> list[bytes]:
    """The categories of the unit."""
    return [word.encode() for word in unit.categories]


def deny_queue(
    s: Server, c: Connection, account: Account, queue: bytes, of: bytes | None = None
) -> bytes:
    """Note the denial; its error (N2.7)."""
    note(s, c, account, QUEUE, queue)
    return Denied(queue, of).error(account.name)


def note(s: Server, c: Connection, account: Account, reason: str, what: bytes) -> None:
    """[N7] Count the denial and keep it for ACL LOG (N7.1)."""
    s.acl.denials.note(
        reason, what, account.name, c.address.encode(), s.n.now_ms, s.cfg.acllog_max_len
    )


# ---- Acts of an administrator, and what the audit keeps of them (SPEC N9)


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
    elif c.long_command is not None or c.is_blocked:
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


# ---- Rights of a call over IPROTO (SPEC N8)


def may_call(s: Server, w: Wired, account: Account, unit: Unit, tube: bytes | None) -> bool:
    """[N8] Whether the user has the unit and may see the tube, if one is named (N8.2)."""
    if not account.granted[unit.code]:
        note(s, w, account, COMMAND, unit.name.encode())
        return False
    if tube is not None and len(tube) > len(account.prefix) and not account.may_see(tube):
        note(s, w, account, QUEUE, tube)
        return False
    return True
