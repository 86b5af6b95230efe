"""Staged and published writes, shares of tenants, times of producers (SPEC Z, N11.7, R4).

Staged jobs are in attempts, attempts in transactions. Consumers see nothing of it. Plain data;
core/staged/ decides.
"""

from collections import OrderedDict
from typing import Final, final

from mypy_extensions import i32, i64, mypyc_attr, u8

from tuque.core.model.errors import Refusal
from tuque.core.model.job import JOB_BYTES, LEVEL
from tuque.core.model.stats import tenant_of
from tuque.core.model.work import LIFE_BYTES, NO_TERMS, Life, Terms
from tuque.core.tables.leases import Batch as LeaseBatch

NAME_MAX: Final = 255  # bytes of txn, attempt and app (Z1.1)
APPS_MAX: Final = 10_000  # Z2.9
APP_KEEP_MS: Final = 30 * 86_400_000  # Z2.9
PUBLISH_MAX: Final = 1_000_000  # jobs per PUBLISH (Z2.8)

# memory costs in bytes, measured with 500,000 (M1)
STAGED_BYTES: Final = 92
ATTEMPT_BYTES: Final = 900
APP_BYTES: Final = 260
NAMED_BYTES: Final = 1_030  # of each queue that attempts have jobs for: PUBLISH may make it

FAIR: Final = 4  # a tenant with more than this part of a common bound is first to lose

KEPT_BACK: Final = 10  # this part of it is for no tenant
FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed


def share_of(most: i64, used: i64, its: i64) -> i64:
    """[N11] How many of `most` places that all share a tenant may have, if `used` are taken, `its`
    of them by the tenant: a quarter of what the others leave, and none of the last tenth (N11.8).
    """
    left: i64 = most - most // KEPT_BACK - used
    return min((most - used + its) // FAIR, its + max(0, left))


@final
@mypyc_attr(acyclic=True)
class Staged:
    """A future job: the arguments of ADDJOB, without time and id."""

    def __init__(
        self,
        queue: bytes,
        body: bytes,
        key: bytes,
        key_ttl_ms: i64,
        repl: i32,
        retry_s: i32,
        delay_s: i32,
        ttl_s: i32,
        maxlen: i32,
        level: u8 = LEVEL,
    ) -> None:
        self.queue = queue
        self.body = body
        self.key = key  # empty: none
        self.key_ttl_ms = key_ttl_ms
        self.repl = repl  # -1: the default at the time of the PUBLISH
        self.retry_s = retry_s
        self.delay_s = delay_s
        self.ttl_s = ttl_s
        self.maxlen = maxlen  # 0: none
        self.level = level
        self.id = b""  # of its job; empty: PUBLISH makes one (Z1.6)
        self.terms: Terms | None = None  # of its work (W1)
        self.headers = b""

    def has_work(self) -> bool:
        """Whether its job comes with terms or headers (W1.1)."""
        return self.terms is not None or len(self.headers) > 0

    def work(self) -> Life:
        """The work of its job, which has not begun."""
        terms = self.terms
        made = Life(NO_TERMS if terms is None else terms, self.headers)
        made.ttl_ms = i64(self.ttl_s) * 1000
        return made


def repl_of(job: Staged, default_repl: i64) -> i64:
    """The number of copies, including this node's."""
    if job.repl > 0:
        return i64(job.repl)
    return 1 if job.retry_s == 0 else default_repl


def staged_bytes(job: Staged) -> i64:
    """Memory of a staged job, in bytes."""
    body: i64 = (len(job.body) + 48) >> 4 << 4
    key: i64 = (len(job.key) + 48) >> 4 << 4 if len(job.key) > 0 else 0
    work: i64 = LIFE_BYTES + len(job.headers) if job.has_work() else 0
    return STAGED_BYTES + body + key + len(job.queue) + len(job.id) + work


def named_bytes(queue: bytes) -> i64:
    """Memory of a queue that attempts have jobs for, and of what PUBLISH may make of it."""
    return NAMED_BYTES + 5 * len(queue)


@final
class Attempt:
    """What one writer staged for a transaction. Jobs are only added."""

    def __init__(self, txn: bytes, name: bytes) -> None:
        self.txn = txn
        self.name = name
        self.jobs: list[Staged] = []
        self.queues: dict[bytes, None] = {}  # of its jobs
        self.bytes: i64 = ATTEMPT_BYTES + len(txn) + len(name)  # without its queues
        self.until_ms: i64 = 0  # expiry (Z1.4)
        self.is_named = False  # a running PUBLISH names it
        self.is_gone = False


@final
class App:
    """The last version published under a name."""

    def __init__(self, version: i64, used_ms: i64) -> None:
        self.version = version
        self.used_ms = used_ms


@final
class Publishing:
    """A finished PUBLISH whose jobs still wait for copies (Z3)."""

    def __init__(self, app: bytes, version: i64) -> None:
        self.app = app
        self.version = version
        self.client: i64 = -1
        self.serial: i64 = 0
        self.count: i64 = 0  # the reply
        self.ids: list[bytes] = []  # jobs that need copies
        self.sent: i64 = 0  # for so many of them copies were sent
        self.left: i64 = 0  # so many lack copies
        self.short: i64 = 0  # so many were queued with fewer
        self.until_ms: i64 = 0
        self.look_ms: i64 = 0  # when more are sent
        self.repeats: list[tuple[int, int]] = []  # clients that repeated it: client, serial
        # of a TOPIC ADD, which has no app (T62.5)
        self.told: list[bytes] = []  # the reply
        self.end_ms: i64 = 0  # of its timeout; 0: none
        self.tubes: list[tuple[bytes, int, int]] = []  # whose changes wait for replicas (T18.5)


@final
class PublishSpec:
    """The arguments of a PUBLISH; `group` empty: no batch is acked."""

    def __init__(self, app: bytes, version: i64, txn: bytes, attempts: list[bytes]) -> None:
        self.app = app
        self.version = version
        self.txn = txn
        self.attempts = attempts
        self.group = b""
        self.epoch: i64 = 0
        self.seq: i64 = 0


@final
class Publish:
    """A running PUBLISH: what it has checked and made so far (Z2.11)."""

    def __init__(self, spec: PublishSpec, client: i64, serial: i64) -> None:
        self.spec = spec
        self.client = client
        self.serial = serial
        self.found: list[Attempt] = []
        self.has_begun = False
        self.is_decided = False
        self.value: i64 = 0  # the reply
        self.error: Refusal | None = None  # or a refusal
        self.default_repl: i64 = 0
        # checked
        self.at: i64 = 0  # index in `found`
        self.place: i64 = 0  # index in its jobs
        self.chosen: list[Staged | None] = []  # None: its key is known
        self.ids: list[bytes] = []
        self.fresh: dict[bytes, int] = {}  # new keys, and their index in `chosen`
        self.longer: dict[bytes, int] = {}  # jobs before this one, by queue with a MAXLEN
        self.last = b""  # the last queue checked
        self.most: i64 = 0  # the MAXLEN of its settings; 0: none
        self.count: i64 = 0  # jobs to make
        self.has_new_key = False  # an ADDJOB used one of its keys meanwhile
        self.awaited: dict[bytes, None] = {}  # not made yet; an ADDJOB waits for their copies
        # done
        self.batches: list[LeaseBatch] = []  # their jobs are still to be acked
        self.first_ns: i64 = 0
        self.now_ms: i64 = 0
        self.made: i64 = 0  # how many of `chosen`
        self.copying: Publishing | None = None

    def look_again(self) -> None:
        """Restart the check."""
        self.at = 0
        self.place = 0
        self.chosen = []
        self.ids = []
        self.fresh = {}
        self.longer = {}
        self.last = b""
        self.count = 0
        self.has_new_key = False


@final
class Staging:
    """All attempts, apps and publications of a node."""

    def __init__(self) -> None:
        self.txns: dict[bytes, dict[bytes, Attempt]] = {}
        self.apps: dict[bytes, App] = {}
        self.queues: dict[bytes, int] = {}  # in how many attempts jobs for it are staged
        self.ends: list[tuple[int, int, Attempt]] = []  # heap of (instant, serial, attempt)
        self.serial: i64 = 0
        self.bytes: i64 = 0
        self.count: i64 = 0  # jobs
        self.attempt_count: i64 = 0
        self.dropping: list[list[Staged]] = []  # freed in slices
        self.publishing: list[Publishing] = []  # those that wait for copies
        self.running: Publish | None = None  # the running one
        # since the start
        self.published: i64 = 0  # finished PUBLISH calls
        self.repeated: i64 = 0  # repeated ones
        self.jobs_published: i64 = 0
        self.jobs_dropped: i64 = 0

    def attempt(self, txn: bytes, name: bytes) -> Attempt | None:
        """The attempt, or None if nothing is staged in it."""
        attempts = self.txns.get(txn)
        return None if attempts is None else attempts.get(name)

    def attempts(self) -> list[Attempt]:
        """All attempts, in order of creation within a transaction."""
        return [a for attempts in self.txns.values() for a in attempts.values()]

    def bytes_used(self) -> i64:
        """Memory of all, and what PUBLISH will add for the jobs (Z2.10)."""
        return self.bytes + self.count * (JOB_BYTES - STAGED_BYTES)

    def check(self) -> None:
        """Assert that the counters are right."""
        total: i64 = 0
        count: i64 = 0
        uses: i64 = 0
        for queue, used in self.queues.items():
            total += named_bytes(queue)
            uses += used
        for a in self.attempts():
            size: i64 = ATTEMPT_BYTES + len(a.txn) + len(a.name)
            uses -= len(a.queues)
            for job in a.jobs:
                size += staged_bytes(job)
            assert size == a.bytes and not a.is_gone, "bytes of an attempt"
            total += size
            count += len(a.jobs)
        for name in self.apps:
            total += APP_BYTES + len(name)
        assert total == self.bytes and count == self.count, "staged jobs"
        assert len(self.attempts()) == self.attempt_count, "attempts"
        assert uses == 0, "queues of attempts"


# ---- What each tenant has of the tables that all share: outcomes, dead letters, what is staged
#
# Where a common bound is reached, what the tenant with much of it has goes first (SPEC N11.7).


@final
class Share:
    """What one tenant has."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.kept: OrderedDict[bytes, int] = OrderedDict()  # bytes of its outcomes, oldest first
        self.kept_bytes: i64 = 0
        # bytes of its dead letters, oldest first, bodies included
        self.letters: OrderedDict[bytes, int] = OrderedDict()
        self.letter_bytes: i64 = 0
        self.life_bytes: i64 = 0  # what is known of its open jobs and dead letters
        self.staged_jobs: i64 = 0
        self.staged_bytes: i64 = 0

    def is_empty(self) -> bool:
        """Whether it has nothing any more."""
        if len(self.kept) > 0 or len(self.letters) > 0:
            return False
        return self.staged_bytes == 0 and self.life_bytes == 0


@final
class Shares:
    """The shares of all tenants; what is nobody's is not counted."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Share] = {}
        self.kept_most: Share | None = None  # had most when something was added last
        self.letters_most: Share | None = None

    def of(self, tenant: bytes) -> Share:
        """The share of that tenant."""
        share = self.by_name.get(tenant)
        if share is None:
            share = Share(tenant)
            self.by_name[tenant] = share
        return share

    def left(self, share: Share) -> None:
        """Forget the share if it is empty."""
        if share.is_empty() and self.by_name.get(share.name) is share:
            del self.by_name[share.name]

    def keep(self, tenant: bytes, id: bytes, size: i64) -> None:
        """An outcome of the tenant is kept, or has another size now."""
        share = self.of(tenant)
        share.kept_bytes += size - share.kept.get(id, 0)
        share.kept[id] = int(size)
        most = self.kept_most
        if most is None or share.kept_bytes > most.kept_bytes:
            self.kept_most = share

    def forget(self, tenant: bytes, id: bytes) -> None:
        """That outcome is not kept any more."""
        share = self.of(tenant)
        share.kept_bytes -= share.kept.pop(id, 0)
        self.left(share)

    def kept_first(self, limit_bytes: i64) -> bytes:
        """The oldest outcome of a tenant with more than its part; empty: there is none."""
        most = self.kept_most
        if most is None or most.kept_bytes * FAIR <= limit_bytes:
            return b""
        return next(iter(most.kept))

    def live(self, tenant: bytes, by: i64) -> None:
        """What is known of the tenant's jobs has so many bytes more."""
        share = self.of(tenant)
        share.life_bytes += by
        self.left(share)

    def bury(self, queue: bytes, id: bytes, size: i64) -> None:
        """A dead letter came to the queue; `size`: with its body."""
        tenant = tenant_of(queue)
        if len(tenant) == 0:
            return
        share = self.of(tenant)
        share.letters[id] = int(size)
        share.letter_bytes += size
        most = self.letters_most
        if most is None or share.letter_bytes > most.letter_bytes:
            self.letters_most = share

    def remove_dead_letter(self, queue: bytes, id: bytes) -> None:
        """A dead letter left the queue."""
        tenant = tenant_of(queue)
        if len(tenant) == 0:
            return
        share = self.of(tenant)
        share.letter_bytes -= share.letters.pop(id, 0)
        self.left(share)

    def letters_first(self, limit_bytes: i64) -> bytes:
        """The oldest dead letter of a tenant with more than its part; empty: there is none."""
        most = self.letters_most
        if most is None or most.letter_bytes * FAIR <= limit_bytes or len(most.letters) < 2:
            return b""
        return next(iter(most.letters))

    def stage(self, txn: bytes, jobs: i64, size: i64) -> None:
        """So many jobs of so many bytes more are staged in the transaction."""
        tenant = tenant_of(txn)
        if len(tenant) == 0:
            return
        share = self.of(tenant)
        share.staged_jobs += jobs
        share.staged_bytes += size
        self.left(share)
