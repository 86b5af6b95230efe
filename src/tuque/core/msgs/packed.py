"""What is packed by hand, as each job or each turn has it: layouts and bounds (SPEC J2, T40, T48).

The other kinds are classes with types (records.py, entries.py). Of these here each has its layout
below, once, with every bound that a reader compares; who reads and writes it stands above it. What
the model or a table already bounds is named by its constant there, of `core/model` or
`core/tables`; a number without a bound may be all that its form can.

Little-endian. A field is its name, its form and its bounds: `u8`, `i16`, `i32` or `i64`, a count of
bytes, or none for bytes that take what is left. `id` has 40 bytes. An `instant` or a `number` is an
i64 from 0 to NUMBER_LAST, a `count` an i32 from 0, a `size` the length i32 of a word
that comes later, and no size is trusted. In brackets: only if a bit says so. A record begins with
the length of its rest, i32, and its kind, u8 (core/records/jobs.py): the sizes below count the kind
and not that length. Records are absolute, each complete in itself: to read one twice changes
nothing.
"""

from typing import Final

NODE_ID_BYTES: Final = 40
ORIGIN_BYTES: Final = 16  # of a list of voters
FAMILY_BYTES: Final = 8  # of these: all lists that came out of one have the same (T28.8)
DISK_BYTES: Final = 8  # of the id of a disk; all 0: none
NUMBER_LAST: Final = (1 << 62) - 1
COUNT_MAX: Final = 1 << 30  # of counters in messages: they keep growing here in 32 bits
REASON_MAX: Final = 2_048

# ---- Jobs: core/records/jobs.py writes them, core/records/read.py reads them

HISTORY_BYTES: Final = 28
"""history, of deliveries: nacks count, deliveries count, delivered_count count, first_ms i64,
last_ms i64.
"""

ADD_BYTES: Final = 84  # kind to queue size, without history, set and level
"""ADD, all of a job: id, state u8 to ACKED, flags u8, shape u8 of HAS_HISTORY, HAS_HOLDERS and
HAS_LEVEL, repl count, retry_s count, delay_s count, ctime_ns i64 from 0, expire_ms i64 from 0,
qtime_ms i64, [history], [set i64 from 0], [level u8 to LEVEL_MAX], queue size, queue, body. Sets
are of slots of core/node/peers.py; without one this node is the only holder, and without a level
the job has LEVEL.
"""

STATE_BYTES: Final = 52  # without history
"""STATE, all that can change: id, state u8 to ACKED, flags u8, shape u8 of HAS_HISTORY, qtime_ms
i64, [history].
"""

FIRST_BYTES: Final = 59
"""FIRST, the same of a first delivery: id, state u8 to ACKED, flags u8, qtime_ms i64, its instant
i64.
"""

ACK_BYTES: Final = 49
"""ACK: id, expire_ms i64."""

ACKED_BYTES: Final = 57
"""ACKED: id, expire_ms i64 from 0, set i64 from 0 of nodes that must still confirm. Empty set: the
job is unknown here, all must confirm.
"""

HOLDERS_BYTES: Final = 49
"""HOLDERS: id, set i64 from 0."""

REMOVE_BYTES: Final = 42
"""REMOVE: id, cause u8."""

TOMB_BYTES: Final = 50
"""TOMB: id, expire_ms i64 from 0, kind u8 of core/model/tombstones.py.

CLOSE, that the server stopped cleanly, has no fields.
"""

# ---- Work: core/records/work.py; in messages after the sender's clock (core/queues/work_copies.py)

SPAN_MAX_MS: Final = 1 << 53  # also of that clock: a sum of a few stays within 64 bits
JITTER_MAX: Final = 1_000

LIFE_FIXED: Final = 158  # id to the first size
LIFE_WORDS: Final = 7
SERIAL_AT: Final = 102  # after the id
"""LIFE: id, bits u8, state u8 (run_state to FAILED, 4: KEEP BODY, 8: it has attempts), attempts i32
to ATTEMPTS_MAX, jitter i32 to JITTER_MAX, failed i32 to ATTEMPTS_MAX, starts i32 to STARTS_MAX,
unstarted count, first_ms, max_ms, keep_ms, limit_ms i64 to SPAN_MAX_MS, replays number, run i64 a
token or 0, since_ms instant, expire_ms instant, ttl_ms number, dead_ms instant, serial number, edit
i64 from 0; 7 sizes, words: dead queue, headers, worker, cancel reason, progress, cause of death,
origin; [first failure], [last failure], [returned i32 from 1], [crashes i32 from 1], [size, row of
core/model/attempts.py].
"""

FAILURE_FIXED: Final = 12
FAILURE_WORDS: Final = 4
"""failure: at_ms instant, attempt i32 to ATTEMPTS_MAX; 4 sizes, words: worker, cause, reason,
detail.
"""

OUTCOME_FIXED: Final = 70  # id to the first size
OUTCOME_WORDS: Final = 3  # without the place
OUTCOME_BITS: Final = 31
PLACE_FIXED: Final = 8
KEEP_TIMES: Final = 16  # to the first size
KEEP_WORDS: Final = 4
KEEP_FIXED: Final = 32
"""OUTCOME: id, kind u8 from DONE to LETTERED, bits u8 to OUTCOME_BITS, attempts i32 to
ATTEMPTS_MAX, until_ms instant, ended_ms instant, run i64 a token or 0; 3 or 4 sizes, words: worker,
progress, reason, [place of a task: number, tube (T48.6)]; [of KEEP: added_ms number from 1,
began_ms instant; 4 sizes, words: queue, row of core/model/attempts.py, headers, body or nothing];
[result]. With until_ms 0 it drops the outcome; with ended_ms 0 it is a claim: what DONE reported of
a job that is not here.
"""

# ---- Tasks and leaders of tubes: core/records/tubes.py; the end of a task is a REMOVE

TASK_FIXED: Final = 76
"""state of a task: ttl_ms number, ttr_ms number, qtime_ms instant, token number, owner number,
taken_ms instant, nacks count, deliveries count, delivered_count count, first_ms instant, last_ms
instant.
"""

TASK_ADD_FIXED: Final = 86  # id to the state
"""TASK-ADD, all of a task: id, status u8 READY TAKEN DELAYED or BURIED, form u8 to MSGPACK, number,
pri number, created_ms instant, ctime_ns i64 from 0, delay_s count, queue size from 1, sub-queue
size, state, queue, sub-queue or entry (below), body. A temporary tube has no records of tasks.
"""

TASK_STATE_FIXED: Final = 41  # id to the state
"""TASK-STATE, all that can change: id, status u8 as above, state. The run that a worker has begun
is in a LIFE (T48.2).
"""

HOME_FIXED: Final = 125  # epoch to the name
"""TUBE-HOME, the leader of a tube and what is here of it (T22.1): epoch, seq, copy epoch, told seq
number, made_ns i64 from 0, sync i32 from 1, flags u8, maker 40, home 40, name, not empty. `seq` is
the last change that the replica here has, in the copy epoch; on the leader it is a number that no
change reaches before the next record, and `told seq` the last change that was made. With GONE the
tube was dropped. A replica writes it with each message of its leader.
"""

# ---- Staged jobs and keys of DEDUPE: core/records/staged.py

STAGED_FIXED: Final = 48  # kind to the size of the queue
STAGED_UNIT: Final = 1 << 17
REPL_MAX: Final = 65_535
"""STAGED: until_ms i64 from 0, position count, copies i32, retry_s count, delay_s count, ttl_s i32
from 1, maxlen count, key_ttl_ms i64 from 0, sizes u8 of txn from 1, of attempt from 1, of key;
queue size, txn, attempt, key, queue, body. Copies: 1 to REPL_MAX, or -1, and STAGED_UNIT for each
step from LEVEL to the level of the job, of which there are up to LEVEL_MAX.
"""

KEY_FIXED: Final = 49  # kind to the key
"""KEY: until_ms instant, id, queue and key as core/tables/dedupe_keys.py joins them, the key not
empty.
"""

# ---- Batches of leases: core/records/leases.py

BATCH_FIXED: Final = 58  # kind to the first position
POSITION_BYTES: Final = 44
"""LEASE-BATCH: epoch i64 from 1, seq i64 from 1, parts i32 from 1 to PARTS_MAX, how u8 to HOW_BITS,
drop_ms i64 from 0, at_ms i64, body bytes i64 from 0, positions i32, first position here i32 from 0,
positions here i32, which with the first are not above the positions; of each an id and a mark i32
from -1 - WHY_MAX, below 0: the job left it (Y3.8); then the group, of 1 to NAME_MAX bytes. A batch
of many jobs is several records, back to back in one frame.
"""

# ---- What tasks of type `tasks` carry, where others have their sub-queue (tubes/entries/keys.py).
# ---- An i16 is first: above 0 of a job, 0 of a schedule, -1 of a group or a child, -2 of a keeper,
# ---- -3 of a value

KEY_MAX: Final = 255
WEIGHT_MAX: Final = 1_000
PLACES_MAX: Final = 1_000_000
BURST_MAX: Final = 1_000_000
GAP_MAX_NS: Final = 3_600_000_000_000  # one an hour
FILL_MAX_NS: Final = 1_000_000_000_000_000_000  # burst * gap: 31 years
UNTIL_MAX_MS: Final = 366 * 86_400_000

KEYS_FIXED: Final = 29  # after the partition's name, to the unique key
"""keys of a job: size of the partition's name i16; group, limit and rate, each after its size u8:
this is the partition's name; weight i32 from 1 to WEIGHT_MAX, places i32 to PLACES_MAX, gap_ns i64
to GAP_MAX_NS, burst i32 from 1 to BURST_MAX, until_ms i64 from -1 to UNTIL_MAX_MS, unique
key after its size u8; then its work. There are places with a limit alone, a gap with a rate alone,
and burst times gap is at most FILL_MAX_NS. A task with neither keys nor work has no bytes.

Its work (tubes/entries/work.py): a LIFE without its id. The run that lasts is in it, and its
worker, with its begin as ms after the take; it counts while the task is TAKEN by that take. ttl_ms
is at most TTL_MAX_MS, and so is the begin.
"""

CHILDREN_MAX: Final = 10_000  # of one group
JOB_ID_MAX: Final = 64

CHILD_FIXED: Final = 35
"""child of a group, which each job of it has (tubes/entries/group.py): i16 -1, kind u8 2, state u8
to FAILED, bits u8 (1: it has a result, 2: it was met), number of its group, index i64 below
CHILDREN_MAX, its end instant; sizes i16 of its id, 1 to JOB_ID_MAX, its word and its reason; these
three; [result].
"""

KEEPER_FIXED: Final = 3
"""keeper of a unique key that outlives its task (tubes/entries/schedule.py): i16 -2, size u8 of an
id, 1 to JOB_ID_MAX; the id of the task that had the key first; the key, of 1 to KEY_MAX bytes.
"""

VALUE_NAME_MAX: Final = 255
SET_PARTS_MAX: Final = 1_000_000
A_VALUE: Final = 1
A_SET: Final = 2
A_PART: Final = 3
VALUE_BITS: Final = 3

VALUE_FIXED: Final = 4
SET_FIXED: Final = 12
PART_FIXED: Final = 16
"""named value (tubes/entries/value.py): i16 -3, kind u8 A_VALUE, bits u8 to VALUE_BITS (1: it was
set with END, 2: with FIXED), its name, of 1 to VALUE_NAME_MAX bytes. Set of parts: i16 -3, kind u8
A_SET, u8 0, size i32 to SET_PARTS_MAX, last i32 from -2 and below SET_PARTS_MAX, its name. Part:
i16 -3, kind u8 A_PART, u8 0, number of its set, index i32 below SET_PARTS_MAX.
"""
