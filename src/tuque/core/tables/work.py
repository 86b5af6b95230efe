"""Tables of work: by job id, outcomes, dead letters, waiting clients (SPEC W).

Plain data; core/life/ and core/queues/ decide.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from tuque.core.model.errors import Refusal
from tuque.core.model.job import Update
from tuque.core.model.rows import Instants
from tuque.core.model.stats import tenant_of
from tuque.core.model.work import (
    LIFE_BYTES,
    LIVE,
    NO_ROOM,
    NO_TERMS,
    TERMS_BYTES,
    TOO_LARGE,
    Life,
    Outcome,
    Terms,
)
from tuque.core.tables.staged import Shares

FAR: Final = (1 << 62) - 1  # largest int that mypyc stores unboxed
CHANGE_BYTES: Final = 400
WATCH_BYTES: Final = 200  # a waiting client, and each id that it waits for
AGAIN_MS: Final = 1_000
STALE_MIN: Final = 1_024  # entries of what is gone, kept before a clean-up
TERMS_MAX: Final = 10_000  # shared ones that are remembered
HASHES_MAX: Final = 1_000
LOOKS: Final = 1_000  # at results or letters, for one to drop
DROPS: Final = 500  # outcomes or letters that go at once when there are too many


# ---- Dead letters of one queue, in order, and how many of each reason (SPEC W12)


@final
class Letters:
    """The dead letters of one queue, oldest first."""

    def __init__(self) -> None:
        self.order = Instants()  # by serial
        self.last: i64 = 0  # the highest serial that one had
        self.count: i64 = 0
        self.reasons: dict[tuple[bytes, bytes], int] = {}  # how many of each cause and reason

    def count_in(self, life: Life, by: i64) -> None:
        """Count a letter that came or went, under the reason that it came with."""
        if by > 0:
            life.buried_as = (life.dead_cause, life.last.reason if life.last is not None else b"")
        self.count += by
        left = self.reasons.get(life.buried_as, 0) + int(by)
        if left > 0:
            self.reasons[life.buried_as] = left
        else:
            self.reasons.pop(life.buried_as, None)

    def recount(self, life: Life, cause: bytes) -> None:
        """Count a letter anew: its cause, or its last failure, is another one now."""
        last = life.last
        life.dead_cause = cause
        if life.buried_as != (cause, last.reason if last is not None else b""):
            self.count_in(life, -1)
            self.count_in(life, 1)

    def after(self, serial: i64, most: i64) -> list[bytes]:
        """The ids of the first ones with a later serial, at most so many."""
        return [one[1] for one in self.order.since((int(serial) + 1, b""), most)]


def enter_letter(
    letters: dict[bytes, Letters], queue: bytes, serial: i64, id: bytes, life: Life
) -> None:
    """The job is the newest dead letter of the queue."""
    found = letters.get(queue)
    if found is None:
        found = Letters()
        letters[queue] = found
    found.order.set(id, serial)
    found.last = max(found.last, serial)
    found.count_in(life, 1)


def last_serial(letters: dict[bytes, Letters], queue: bytes) -> i64:
    """The serial of the queue's newest dead letter, which may be gone; 0: it has none."""
    found = letters.get(queue)
    return 0 if found is None else found.last


def count_of(letters: dict[bytes, Letters], queue: bytes) -> i64:
    """How many dead letters the queue has."""
    found = letters.get(queue)
    return 0 if found is None else found.count


# ---- All tables of one node, and what they cost (SPEC W)


@final
class Watch:
    """A client that waits for the ends of jobs (W9)."""

    def __init__(self, client: i64, ids: list[bytes], until_ms: i64) -> None:
        self.client = client
        self.ids = ids
        self.until_ms = until_ms  # 0: for ever


@final
class Asking:
    """A job that is not known here, and what other nodes said of it (W15)."""

    def __init__(self, what: i64, reason: bytes) -> None:
        self.what = what
        self.reason = reason
        self.since_ms: i64 = 0
        self.next_ms: i64 = 0  # of the next question
        self.denied: i64 = 0  # nodes that do not know it, as they said to the last question
        self.earlier: i64 = 0  # to the one before
        self.asked: i64 = 0  # nodes that got a question
        self.became: i64 = 0  # of a CANCEL
        self.is_told = False  # somebody knew it, or nobody does
        self.is_settled = False
        self.is_shared = False  # the result was dropped, and another holder may have it (W15.10)
        self.fields: list[object] = []  # of RESULT
        self.wanted: i64 = 0  # what else is asked for: bits of core/life/shown.py
        self.more: object = None  # of it, as in msgs/bus.py, if it was said


@final
class Change:
    """An UPDATEJOB or CANCEL of a job with copies, under way (W16)."""

    def __init__(self, id: bytes, update: Update | None, reason: bytes) -> None:
        self.id = id
        self.serial: i64 = 0
        self.update = update  # None: it is a CANCEL
        self.reason = reason
        self.asked: i64 = 0  # slots
        self.waiting: i64 = 0  # those whose answer is awaited
        self.until_ms: i64 = 0
        self.is_made = False  # an update was decided here, and is sent to all: it stands
        self.resting: i64 = 0  # holders at which nobody has the job
        self.queued: i64 = 0  # of them those at which it is queued
        self.decider: i64 = 0  # slot of another node that decides about an update; 0: not yet
        self.asker: i64 = 0  # slot of the node that asked this one to decide, and its serial
        self.asker_serial: i64 = 0
        self.is_over = False
        self.became: i64 = 0  # of a CANCEL
        self.refused: Refusal | None = None
        self.slots: list[int] = []  # nodes that asked for this CANCEL (W15.2)

    def size(self) -> i64:
        """Bytes of memory."""
        body = self.update.body if self.update is not None else None
        return CHANGE_BYTES + len(self.reason) + (len(body) if body is not None else 0)


@final
class Lives:
    """All of it on one node, and what it costs."""

    in_hand: Outcome | None = None  # with a result that goes out in this turn and is not kept
    result: bytes | None = None  # what DONE says of the task that ends now
    done_run: i64 = 0  # the run that it names, 0: none (E1.7)
    details_thinned: i64 = 0  # dropped for memory (M3.4)
    results_thinned: i64 = 0
    asked_ms: i64 = 0  # when the second began in which `asked` questions were sent (W15.1)
    asked: i64 = 0  # without those that were answered
    drop_ms: i64 = 0  # letters above the bound stay until then
    came: i64 = 0  # letters so far
    passed: i64 = 0  # kept outcomes that need not go to another node (K7.10)
    alone: i64 = 0  # those of them that no other node takes
    asked_terms: Terms | None = None  # the last ones that a job came with
    found_terms = NO_TERMS  # those that it shares
    large_id = b""  # the last one of which the result was dropped at DONE (W7.4)

    def __init__(self) -> None:
        self.ended_in: dict[bytes, dict[int, bytes]] = {}  # kept ones of tasks: tube, number, id
        self.by_id: dict[bytes, Life] = {}
        self.terms: dict[tuple[int, int, int, int, bytes, int, int, bool, bool], Terms] = {}
        self.kept: dict[bytes, Outcome] = {}
        self.kept_order: deque[bytes] = deque()  # their ids by age; some may be gone
        self.fat: deque[bytes] = deque()  # of kept ones with a large result, by age
        self.ends = Instants()  # of KEEP
        self.letters: dict[bytes, Letters] = {}  # by queue
        self.shares = Shares()  # of tenants in outcomes and letters
        self.old = Instants()  # all letters, as they came
        self.serial: i64 = 0
        self.fat_letters = Instants()  # those with details, as they came
        self.giants: dict[bytes, None] = {}  # letters that alone were above the bound (W6.6)
        self.watches: dict[int, Watch] = {}  # by client
        self.watchers: dict[bytes, dict[int, None]] = {}  # clients by job id
        self.deadlines: list[tuple[int, int]] = []  # heap of (instant, client)
        self.calls: list[tuple[int, bytes, int]] = []  # connections to tell of a cancelled run
        self.last_worker = b""  # of the newest run, and its hash
        self.last_hash: i64 = 0
        self.hashes: dict[bytes, int] = {}  # of workers
        self.bytes: i64 = 0  # lives, with dead letters' parts
        self.kept_bytes: i64 = 0
        self.body_bytes: i64 = 0  # of these: bodies of KEEP BODY
        self.fat_bytes: i64 = 0  # results and details that may go for memory (M3.4)
        self.dead_bytes: i64 = 0  # dead letters with their bodies
        self.watch_bytes: i64 = 0
        self.retelling: dict[int, list[bytes]] = {}  # by slot: jobs to tell it of (W14.10)
        self.letters_in_all: i64 = 0
        self.asking: dict[bytes, Asking] = {}  # by job id
        self.cancelling: dict[bytes, Asking] = {}  # the same of CANCEL
        self.unanswered: dict[bytes, int] = {}  # nodes that got a CANCEL, by job id (W15.8)
        self.updates: dict[int, Change] = {}  # UPDATEJOBs under way, by serial
        self.cancels: dict[bytes, Change] = {}  # CANCELs under way, by job id
        self.updates_made: i64 = 0
        self.change_bytes: i64 = 0  # of changes under way, with their bodies
        self.deaf_ms: i64 = 0  # until then this node heard nobody (W6.1)
        self.untold: dict[bytes, None] = {}  # runs begun, not told to the other holders yet
        self.beat_ms: i64 = 0  # when they are
        self.runs: i64 = 0  # this and what follows are counters
        self.failures: i64 = 0
        self.crashes: i64 = 0
        self.dead: i64 = 0
        self.cancelled: i64 = 0
        self.replayed: i64 = 0
        self.kept_dropped: i64 = 0
        self.conflicts: i64 = 0  # jobs of which two outcomes met (W14.15)
        self.conflict_id = b""  # the last one
        self.dead_dropped: i64 = 0
        self.results_large: i64 = 0  # dropped at DONE (W7.4)

    def bytes_used(self) -> i64:
        """Memory in bytes (M1)."""
        used = self.bytes + self.kept_bytes + self.watch_bytes + self.change_bytes
        return used + len(self.terms) * TERMS_BYTES

    def share(self, terms: Terms) -> Terms:
        """The one that equal jobs share."""
        if terms is self.asked_terms:
            return self.found_terms
        key = terms.key()
        found = self.terms.get(key)
        if found is None:
            found = terms
            if len(self.terms) >= TERMS_MAX:
                self.terms = {}
            self.terms[key] = terms
        self.asked_terms, self.found_terms = terms, found
        return found

    def stop_runner(self, id: bytes, work: Life, client: i64 = -1) -> None:
        """[W8] The connection that last spoke of the run at work learns that it is cancelled or
        over, unless it is this one, which says so (W8.2).
        """
        if work.run_state == LIVE and work.client >= 0 and work.client != client:
            self.calls.append((int(work.client), id, int(work.run)))

    def weigh(self, work: Life) -> None:
        """Count its bytes anew after a change."""
        size = work.size()
        self.bytes += size - work.bytes
        if work.is_dead:
            self.dead_bytes += size - work.bytes
        if len(work.tenant) > 0:
            self.pay(work, size - work.bytes)
        work.bytes = size

    def remember(self, worker: bytes, hash: i64) -> None:
        """Keep the hash of a worker, and of this node (W1.2)."""
        if len(self.hashes) >= HASHES_MAX:
            self.hashes = {}
        self.hashes[worker] = int(hash)

    def enter_new(self, id: bytes, work: Life, queue: bytes) -> None:
        """As `enter`, of one that has a worker and nothing else."""
        self.by_id[id] = work
        work.bytes = LIFE_BYTES + len(work.worker)
        work.tenant = tenant_of(queue)
        self.bytes += work.bytes
        self.pay(work, work.bytes)

    def enter(self, id: bytes, work: Life, queue: bytes) -> None:
        """A job of the queue has work now. `id` is the one of the job: tables find it sooner."""
        self.by_id[id] = work
        work.tenant = tenant_of(queue)
        self.weigh(work)

    def size_of_headers(self, id: bytes) -> i64:
        """Bytes of the headers of a job, also of one without work."""
        work = self.by_id.get(id)
        return 0 if work is None else len(work.headers)

    def rehouse(self, work: Life, queue: bytes) -> None:
        """[N11] Its job belongs to that queue now: another tenant may pay for it (N11.2)."""
        tenant = tenant_of(queue)
        if work.tenant != tenant:
            self.pay(work, -work.bytes)
            work.tenant = tenant
            self.pay(work, work.bytes)

    def pay(self, work: Life, by: i64) -> None:
        """[N11] Count bytes of the work, more or fewer, for its tenant (N11.2)."""
        if len(work.tenant) > 0:
            self.shares.live(work.tenant, by)

    def leave(self, id: bytes, work: Life) -> None:
        """The job ended, or left: drop its work."""
        del self.by_id[id]
        self.bytes -= work.bytes
        self.pay(work, -work.bytes)
        if work.is_dead:
            self.dead_bytes -= work.bytes
        self.fat_bytes -= work.fat_bytes
        work.fat_bytes = 0
        work.bytes = 0

    # ---- outcomes

    def keep(self, outcome: Outcome, limit_bytes: i64) -> None:
        """Keep how a job ended; the first outcome stands. Above the limit without the body, and if
        it is still above, without the result.
        """
        if outcome.id in self.kept:
            return
        if outcome.size() > limit_bytes:
            outcome.shed()  # W18.5
        if outcome.result is not None and outcome.size() > limit_bytes:
            self.large_bytes = outcome.size()
            outcome.strip(TOO_LARGE)  # W7.4
        if not outcome.is_claim:
            outcome.fat_bytes = outcome.fat()
            if outcome.fat_bytes > 0:
                self.fat.append(outcome.id)
                self.fat_bytes += outcome.fat_bytes
        self.kept[outcome.id] = outcome
        self.kept_order.append(outcome.id)
        self.kept_bytes += outcome.size()
        self.body_bytes += outcome.body_size()
        if len(outcome.tenant) > 0:
            self.shares.keep(outcome.tenant, outcome.id, outcome.size())  # N11.7
        if outcome.is_of_task():
            ended = self.ended_in.get(outcome.queue)
            if ended is None:
                ended = {}
                self.ended_in[outcome.queue] = ended
            ended[outcome.number] = outcome.id
        self.ends.set(outcome.id, outcome.until_ms)

    def kept_in(self, tube: bytes, number: i64) -> Outcome | None:
        """[T48] The kept outcome of the task that had this number in the tube (T48.6)."""
        ended = self.ended_in.get(tube)
        id = ended.get(number) if ended is not None else None
        return None if id is None else self.kept.get(id)

    def known(self, id: bytes) -> Outcome | None:
        """The kept outcome, unless it is only what somebody said of a job that is not here."""
        outcome = self.kept.get(id)
        return None if outcome is None or outcome.is_claim else outcome

    def forget(self, id: bytes) -> None:
        """Drop a kept outcome."""
        outcome = self.kept.pop(id, None)
        if outcome is not None:
            self.ends.unset(id, outcome.until_ms)
            self.kept_bytes -= outcome.size()
            self.body_bytes -= outcome.body_size()
            self.fat_bytes -= outcome.fat_bytes
            outcome.fat_bytes = 0
            self.pass_not(outcome)
            if len(outcome.tenant) > 0:
                self.shares.forget(outcome.tenant, id)
            if outcome.is_of_task():
                ended = self.ended_in[outcome.queue]
                if ended.get(outcome.number) == id:  # not another one's (T18.6)
                    del ended[outcome.number]
                if len(ended) == 0:
                    del self.ended_in[outcome.queue]

    def thin_result(self) -> bool:
        """[M3] Drop the oldest large result or body; its outcome stays (M3.4). False: none was
        found.

        Those that a client waits for go to the end of the line: so a step stays short.
        """
        looks: i64 = min(len(self.fat), LOOKS)
        while looks > 0:
            looks -= 1
            id = self.fat.popleft()
            outcome = self.kept.get(id)
            if outcome is None or outcome.fat_bytes == 0:
                continue
            if id in self.watchers:
                self.fat.append(id)
                continue
            self.kept_bytes -= outcome.size()
            self.body_bytes -= outcome.body_size()
            self.fat_bytes -= outcome.fat_bytes
            outcome.fat_bytes = 0
            outcome.thin(NO_ROOM)
            self.kept_bytes += outcome.size()
            self.body_bytes += outcome.body_size()
            if len(outcome.tenant) > 0:
                self.shares.keep(outcome.tenant, id, outcome.size())
            self.results_thinned += 1
            return True
        return False

    def put_off(self, outcome: Outcome, until_ms: i64) -> None:
        """A kept outcome is kept until then."""
        self.ends.unset(outcome.id, outcome.until_ms)
        outcome.until_ms = until_ms
        self.ends.set(outcome.id, until_ms)

    def hasten(self, id: bytes, now_ms: i64) -> None:
        """All holders confirmed the end: an outcome kept for them only is dropped (W7.3)."""
        if len(self.kept) == 0:
            return
        outcome = self.kept.get(id)
        if outcome is not None and outcome.is_brief:
            outcome.is_brief = False
            self.put_off(outcome, now_ms + 1)

    def forget_all(self) -> list[Outcome]:
        """Drop all kept outcomes; returns them."""
        outcomes = list(self.kept.values())
        self.pass_none()
        self.kept = {}
        self.kept_order = deque()
        self.fat = deque()
        self.ends = Instants()
        self.ended_in = {}
        self.kept_bytes = 0
        self.body_bytes = 0
        for outcome in outcomes:
            self.fat_bytes -= outcome.fat_bytes
            outcome.fat_bytes = 0
            if len(outcome.tenant) > 0:
                self.shares.forget(outcome.tenant, outcome.id)
        return outcomes

    def let_pass(self, outcome: Outcome, is_alone: bool) -> None:
        """[K7] A kept outcome need not go to another node: one has it, or none takes it (K7.10)."""
        if not outcome.is_passed:
            outcome.is_passed = True
            outcome.is_alone = is_alone
            self.passed += 1
            self.alone += 1 if is_alone else 0

    def pass_not(self, outcome: Outcome) -> None:
        """[K7] Undo that."""
        if outcome.is_passed:
            outcome.is_passed = False
            self.passed -= 1
            self.alone -= 1 if outcome.is_alone else 0

    def pass_none(self) -> None:
        """[K7] No kept outcome has gone to another node yet."""
        if self.passed > 0:
            for outcome in self.kept.values():
                self.pass_not(outcome)

    def forget_old(self, now_ms: i64, limit_bytes: i64) -> None:
        """Drop outcomes whose KEEP is over, and the oldest above the limit (W7.4): some at once."""
        left = DROPS
        while left > 0 and self.ends.first_ms() <= now_ms:
            left -= 1
            id = self.ends.first_key()
            if id in self.watchers:  # one who waits for others as well will ask for it
                self.put_off(self.kept[id], now_ms + AGAIN_MS)
            else:
                self.forget(id)
        while left > 0 and self.kept_bytes > limit_bytes and len(self.kept_order) > 0:
            left -= 1
            oldest = self.shares.kept_first(limit_bytes)  # N11.7
            if len(oldest) == 0:
                oldest = self.kept_order.popleft()
            if oldest in self.kept:
                self.forget(oldest)
                self.kept_dropped += 1
        if len(self.kept_order) > 2 * len(self.kept) + STALE_MIN:
            self.kept_order = deque([id for id in self.kept_order if id in self.kept])
            self.fat = deque([id for id in self.fat if id in self.kept])

    # ---- dead letters

    def bury(
        self, queue: bytes, id: bytes, life: Life, body_bytes: i64, limit_bytes: i64, at: i64 = 0
    ) -> None:
        """The job is a dead letter of the queue now; `at`: its serial, above those of the queue."""
        serial = at
        if at == 0:
            self.serial += 1
            serial = self.serial
        life.serial = serial
        life.is_dead = True
        self.dead_bytes += life.bytes + body_bytes
        enter_letter(self.letters, queue, serial, id, life)
        self.letters_in_all += 1
        self.shares.bury(queue, id, life.bytes + body_bytes)
        self.came += 1
        life.came = self.came
        self.old.set(id, life.came)
        if life.bytes + body_bytes > limit_bytes:
            self.giants[id] = None
        life.fat_bytes = life.detail_bytes()
        if life.fat_bytes > 0:
            self.fat_bytes += life.fat_bytes
            self.fat_letters.set(id, life.came)

    def thin_letter(self) -> bool:
        """[M3] Drop the details of the oldest dead letter that has some; False: none has (M3.4)."""
        if self.fat_letters.count == 0:
            return False
        id = self.fat_letters.first_key()
        if id in self.watchers:
            for entry in self.fat_letters.firsts(LOOKS):
                id = entry[1]
                if id not in self.watchers:
                    break
            else:
                return False
        life = self.by_id[id]
        life.cut_details()
        self.weigh(life)
        self.drop_fat(id, life)
        self.details_thinned += 1
        return True

    def drop_fat(self, id: bytes, life: Life) -> None:
        """The letter has no details any more, or is gone."""
        if life.fat_bytes > 0:
            self.fat_letters.unset(id, life.came)
            self.fat_bytes -= life.fat_bytes
            life.fat_bytes = 0

    def remove_dead_letter(self, queue: bytes, id: bytes, life: Life, body_bytes: i64) -> None:
        """The job is no dead letter any more, or is gone."""
        self.dead_bytes -= life.bytes + body_bytes
        self.drop_fat(id, life)
        self.old.unset(id, life.came)
        life.is_dead = False
        self.shares.remove_dead_letter(queue, id)
        letters = self.letters[queue]
        letters.order.unset(id, life.serial)
        letters.count_in(life, -1)
        self.letters_in_all -= 1
        if letters.count == 0:
            del self.letters[queue]

    def letter_count(self) -> i64:
        """Number of dead letters."""
        return self.letters_in_all

    def oldest_letter(self) -> bytes:
        """The id of the oldest dead letter; empty: there is none."""
        return self.old.first_key() if self.old.count > 0 else b""

    # ---- clients that wait

    def watch(self, client: i64, ids: list[bytes], until_ms: i64) -> None:
        """The client waits for the ends of these jobs."""
        self.watches[client] = Watch(client, ids, until_ms)
        self.watch_bytes += WATCH_BYTES * (1 + len(ids))
        for id in ids:
            waiting = self.watchers.get(id)
            if waiting is None:
                waiting = {}
                self.watchers[id] = waiting
            waiting[client] = None
        if until_ms > 0:
            heappush(self.deadlines, (until_ms, client))

    def waiting_for(self, id: bytes, is_prefix: bool) -> list[int]:
        """Clients that wait for this id, or for any that begins so."""
        if not is_prefix:
            return list(self.watchers.get(id, ()))
        found: list[int] = []
        for other, clients in self.watchers.items():
            if other.startswith(id):
                found.extend(clients)
        return found

    def watch_size(self, client: i64) -> i64:
        """Bytes of the client's wait."""
        watch = self.watches.get(client)
        return 0 if watch is None else WATCH_BYTES * (1 + len(watch.ids))

    def extend(self, client: i64, until_ms: i64) -> None:
        """The client waits until then."""
        watch = self.watches[client]
        watch.until_ms = until_ms
        heappush(self.deadlines, (until_ms, client))

    def unwatch(self, client: i64) -> bool:
        """End the client's wait; whether it waited."""
        watch = self.watches.pop(client, None)
        if watch is None:
            return False
        self.watch_bytes -= WATCH_BYTES * (1 + len(watch.ids))
        for id in watch.ids:
            waiting = self.watchers.get(id)
            if waiting is not None:
                waiting.pop(client, None)
                if len(waiting) == 0:
                    del self.watchers[id]
                    self.asking.pop(id, None)
                    self.cancelling.pop(id, None)
        if len(self.deadlines) > 2 * len(self.watches) + STALE_MIN:
            kept: list[tuple[int, int]] = []
            for one in self.watches.values():
                if one.until_ms > 0:
                    kept.append((one.until_ms, one.client))
            kept.sort()
            self.deadlines = kept
        return True

    def late(self, now_ms: i64) -> list[int]:
        """Clients whose wait is over by their timeout."""
        over: list[int] = []
        while len(self.deadlines) > 0 and self.deadlines[0][0] <= now_ms:
            until_ms, client = heappop(self.deadlines)
            watch = self.watches.get(client)
            if watch is not None and watch.until_ms == until_ms:
                over.append(client)
        return over

    def next_ms(self) -> i64:
        """The instant at which there is something to drop, or a wait ends; FAR: never."""
        at_ms = self.ends.first_ms()
        if len(self.deadlines) > 0 and self.deadlines[0][0] < at_ms:
            at_ms = self.deadlines[0][0]
        if len(self.untold) > 0 and self.beat_ms < at_ms:
            at_ms = self.beat_ms
        for change in self.updates.values():
            at_ms = min(at_ms, change.until_ms)
        for change in self.cancels.values():
            at_ms = min(at_ms, change.until_ms)
        return at_ms
