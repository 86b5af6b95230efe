"""What a node keeps of staged writes and of published ones (SPEC Z).

Staged jobs are in attempts, attempts in transactions. Consumers see nothing of it. Plain data;
core/transactions/stage.py and core/transactions/publish.py decide.
"""

from typing import Final, final

from mypy_extensions import i32, i64, mypyc_attr

from tuque.core.model.refusal import Refusal
from tuque.core.state.lease_groups import Batch

NAME_MAX: Final = 255  # bytes of txn, attempt and app (Z1.1)
APPS_MAX: Final = 10_000  # Z2.9
APP_KEEP_MS: Final = 30 * 86_400_000  # Z2.9
PUBLISH_MAX: Final = 1_000_000  # jobs per PUBLISH (Z2.8)

# memory costs in bytes, measured with 500,000 (M1)
STAGED_BYTES: Final = 92
ATTEMPT_BYTES: Final = 900
APP_BYTES: Final = 260
NAMED_BYTES: Final = 100  # of each queue that an attempt has jobs for


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


def repl_of(job: Staged, default_repl: i64) -> i64:
    """The number of copies, including this node's."""
    if job.repl > 0:
        return i64(job.repl)
    return 1 if job.retry_s == 0 else default_repl


def staged_bytes(job: Staged) -> i64:
    """Memory of a staged job, in bytes."""
    body: i64 = (len(job.body) + 48) >> 4 << 4
    key: i64 = (len(job.key) + 48) >> 4 << 4 if len(job.key) > 0 else 0
    return STAGED_BYTES + body + key + len(job.queue)


@final
class Attempt:
    """What one writer staged for a transaction. Jobs are only added."""

    def __init__(self, txn: bytes, name: bytes) -> None:
        self.txn = txn
        self.name = name
        self.jobs: list[Staged] = []
        self.queues: dict[bytes, None] = {}  # of its jobs
        self.bytes: i64 = ATTEMPT_BYTES + len(txn) + len(name)
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
        self.count: i64 = 0  # jobs to make
        self.has_new_key = False  # an ADDJOB used one of its keys meanwhile
        self.awaited: dict[bytes, None] = {}  # not made yet; an ADDJOB waits for their copies
        # done
        self.batches: list[Batch] = []  # their jobs are still to be acked
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

    def check(self) -> None:
        """Assert that the counters are right."""
        total: i64 = 0
        count: i64 = 0
        for a in self.attempts():
            size: i64 = ATTEMPT_BYTES + len(a.txn) + len(a.name) + NAMED_BYTES * len(a.queues)
            for job in a.jobs:
                size += staged_bytes(job)
            assert size == a.bytes and not a.is_gone, "bytes of an attempt"
            total += size
            count += len(a.jobs)
        for name in self.apps:
            total += APP_BYTES + len(name)
        assert total == self.bytes and count == self.count, "staged jobs"
        assert len(self.attempts()) == self.attempt_count, "attempts"
