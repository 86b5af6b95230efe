"""STAGE and PUBLISH: arguments, and replies from the core's results (SPEC Z)."""

from typing import Final, final

from mypy_extensions import i32, i64, u8

from tuque.core.copies.add import for_queue, letters_refusal, settle
from tuque.core.model.errors import (
    AMO_ONE_COPY,
    ATTEMPTS_OF_ONCE,
    DELAY_BEYOND_TTL,
    PRI_OF_QUEUE,
    Refusal,
)
from tuque.core.model.job import LEVEL, LEVEL_MAX, PLAIN, AddSpec
from tuque.core.staged.publish import WAITS, drop_publish, new_id, publish_some
from tuque.core.staged.stage import on_stage
from tuque.core.tables.staged import (
    NAME_MAX,
    Publish,
    PublishSpec,
    Staged,
)
from tuque.server.replies.errors import core_words, error_words
from tuque.server.replies.long_commands import begin
from tuque.server.replies.waiting import await_copies
from tuque.server.state.client import Client, LongCommand
from tuque.server.state.server import Server
from tuque.wire.commands.add_options import (
    BASIC_WORDS,
    STAGE_WORDS,
    WORK_WORDS,
    Taker,
    addjob_options,
)
from tuque.wire.commands.arguments import ArgError, Misuse, ranged
from tuque.wire.proto.resp import int_reply, put_bulk

STAGE: Final = Taker(b"STAGE", STAGE_WORDS + BASIC_WORDS + (b"PRI",) + WORK_WORDS, least_ttl=1)
TTL_MIN_MS: Final = 1_000
TTL_MAX_MS: Final = 7 * 86_400_000
NUMBER_MAX: Final = 1 << 52
TUBE_STAGED: Final = b"ERR '%s' is a tube: writes to it are not staged"
STAGE_LEAVING: Final = b"LEAVING this node leaves the cluster and stages nothing: ask another one"
NAMED: Final = (
    b"ERR attempt '%s' of transaction '%s' is being published: stage in another attempt, or later"
)
VERSION_MAX: Final = 1 << 62
BAD_TTL: Final = b"ERR ttl-ms must be a number from 1000 to 604800000"
BAD_VERSION: Final = b"ERR version must be a number from 0 to 4611686018427387904"
BAD_EPOCH: Final = b"ERR epoch must be a number from 1 to 4503599627370496"
BAD_SEQ: Final = b"ERR seq must be a number from 1 to 4503599627370496"
NOT_ACK: Final = b"ERR a transaction is not named ACK: that is a word of PUBLISH"


@final
class Publication(LongCommand):
    """[Z2] PUBLISH of many jobs: check all, publish all, then create them (Z2.11)."""

    def __init__(self, s: Server, c: Client, spec: PublishSpec) -> None:
        super().__init__(c)
        self.s = s
        self.client = c
        self.work = Publish(spec, c.number, c.first_serial + len(c.holes))

    def step(self, room: i64) -> bool:
        """Check the next jobs, or create them."""
        x = self.work
        try:
            is_done = publish_some(self.s.n, x, room)
        except Exception:
            self.drop()
            raise
        self.goes_on = x.is_decided
        if is_done and x.error is not None:
            raise ArgError(core_words(x.error))
        return is_done

    def drop(self) -> None:
        """Publish nothing."""
        drop_publish(self.s.n, self.work)

    def tell(self) -> None:
        """Reply with the number of jobs, once they have their copies."""
        c = self.client
        if self.work.value != WAITS:
            c.out.append(int_reply(self.work.value))
        elif not c.is_closed:
            serial = c.first_serial + len(c.holes)
            await_copies(self.s, c)
            if self.is_muted:
                c.muted[serial] = None


def check_name(name: bytes) -> None:
    """Check the name of an app, transaction or attempt (Z1.1)."""
    if not 1 <= len(name) <= NAME_MAX:
        raise ArgError(b"ERR app, txn and attempt have names of 1 to 255 bytes")


def cmd_stage(s: Server, c: Client, args: list[bytes]) -> None:
    """[Z1] STAGE txn attempt ttl-ms queue body [options]: jobs in the attempt (Z1.3)."""
    n = s.n
    check_name(args[1])
    check_name(args[2])
    if args[1].upper() == b"ACK":
        raise ArgError(NOT_ACK)
    ttl_ms = ranged(args[3], TTL_MIN_MS, TTL_MAX_MS, BAD_TTL)
    spec = addjob_options(args, 6, STAGE) if len(args) > 6 else PLAIN
    full = for_queue(n, args[4], settle(n, spec))
    if full.replicate > 1 and full.retry_s == 0:
        raise ArgError(error_words(AMO_ONE_COPY))
    if full.delay_s >= full.ttl_s:
        raise ArgError(error_words(DELAY_BEYOND_TTL))
    check_terms(s, full)
    q = n.queues.get(args[4])
    if q is not None and q.policy is not None:
        raise ArgError(TUBE_STAGED % args[4])  # T1.6
    if spec.pri > LEVEL_MAX:
        raise ArgError(core_words(Refusal(PRI_OF_QUEUE, (args[4],))))  # R1.13
    if s.is_parting():
        raise ArgError(STAGE_LEAVING)
    a = n.staging.attempt(args[1], args[2])
    if a is not None and a.is_named:
        raise ArgError(NAMED % (args[2], args[1]))  # Z2.11
    job = staged(s, args, spec, full)
    if spec.with_id:
        job.id = new_id(n, job)  # Z1.6
    count = on_stage(n, args[1], args[2], ttl_ms, job)
    if spec.with_id:
        put_bulk(c.out, job.id)
    else:
        c.out.append(int_reply(count))


def check_terms(s: Server, full: AddSpec) -> None:
    """Check the options about its work (W1.4)."""
    terms = full.terms
    if terms is not None and terms.attempts > 0 and full.retry_s == 0:
        raise ArgError(error_words(ATTEMPTS_OF_ONCE))
    refused = letters_refusal(s.n, full)
    if refused is not None:
        raise ArgError(core_words(refused))


def staged(s: Server, args: list[bytes], spec: AddSpec, full: AddSpec) -> Staged:
    """The job as staged; REPLICATE gets its default at publication (Z2.7)."""
    job = Staged(
        args[4],
        args[5],
        spec.key,
        spec.key_ttl_ms,
        i32(spec.replicate),
        i32(full.retry_s),
        i32(full.delay_s),
        i32(full.ttl_s),
        i32(full.maxlen),
        u8(spec.pri if spec.has_pri else LEVEL),
    )
    job.terms = None if spec.terms is None else s.n.life.share(spec.terms)
    job.headers = spec.headers
    return job


def cmd_publish(s: Server, c: Client, args: list[bytes]) -> None:
    """[Z2] PUBLISH app version [ACK group epoch seq] txn [attempt ...]: jobs; -1: done before."""
    check_name(args[1])
    version = ranged(args[2], 0, VERSION_MAX, BAD_VERSION)
    at: i64 = 3
    is_acking = args[3].upper() == b"ACK"
    if is_acking:
        if len(args) < 8:
            raise Misuse(args[3])
        at = 7
    check_name(args[at])
    attempts: list[bytes] = []
    named: dict[bytes, None] = {}
    for name in args[at + 1 :]:
        check_name(name)
        if name not in named:
            named[name] = None
            attempts.append(name)
    spec = PublishSpec(args[1], version, args[at], attempts)
    if is_acking:
        check_name(args[4])
        spec.group = args[4]
        spec.epoch = ranged(args[5], 1, NUMBER_MAX, BAD_EPOCH)
        spec.seq = ranged(args[6], 1, NUMBER_MAX, BAD_SEQ)
    begin(s, c, Publication(s, c, spec))
