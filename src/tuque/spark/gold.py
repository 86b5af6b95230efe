"""Gold: one row per queue and minute, in SQL for both Spark and duckdb (SPEC H3).

Decides what counts in which minute. Events count in their own minute; of several ends of a job only
one counts (H2); percentiles are over the jobs that ended in the minute. Knows no engine, no files.
"""

from __future__ import annotations

from typing import Final

from tuque.spark.silver import ENDED

COUNTED: Final = "added delivered acked nacked requeued expired dead deleted cancelled".split()
LATENCIES: Final = (
    "wait_p50_ms wait_p95_ms wait_p99_ms process_p50_ms process_p95_ms process_p99_ms".split()
)

# What each event adds to its minute. `change` is the change in the number of unfinished jobs.
PARTS: Final = f"""
SELECT ts, queue, event, delivery,
       CASE WHEN event = 'added' THEN 1 WHEN event IN {ENDED} THEN -1 ELSE 0 END AS change,
       CASE WHEN first_us < due_us THEN 0e0 ELSE (first_us - due_us) / 1e3 END AS wait_ms,
       CASE WHEN event IN ('acked', 'dead') THEN
         CASE WHEN us < last_us THEN 0e0 ELSE (us - last_us) / 1e3 END
       END AS process_ms,
       CASE WHEN us < due_us - delay_us THEN 0e0 ELSE (us - due_us + delay_us) / 1e3
       END AS total_ms
FROM (
  SELECT ts, queue, event, delivery,
         unix_micros(ts) AS us,
         unix_micros(enqueued_at) AS due_us,
         unix_micros(first_delivered_at) AS first_us,
         unix_micros(last_delivered_at) AS last_us,
         delay_ms * 1000 AS delay_us
  FROM counted WHERE job_id <> ''
) e
"""

# The events that count: `events` without those of `extra`, the ends that silver leaves out.
# A stream counts them all: to know the ends of a job it would have to keep every job for as
# long as another end may come, which costs nine tenths of its speed. ONCE is for its table.
COUNTED_EVENTS: Final = """
SELECT * FROM events
WHERE NOT EXISTS (SELECT 1 FROM extra x WHERE x.node = events.node AND x.seq = events.seq)
"""


def minutes(by: str = "date_trunc('minute', ts)", start: str = "minute") -> str:
    """The query over `counted`; `by` groups by minute and `start` is the minute's beginning.

    A stream needs Spark's own window there: the watermark works with no other expression.
    """
    counts = ",\n         ".join(
        f"CAST(count_if(event = '{event}') AS BIGINT) AS {event}" for event in COUNTED
    )
    cells = ", ".join(
        f"element_at({name[:-7]}, {place}) AS {name}"
        for place, name in zip((1, 2, 3) * 2, LATENCIES, strict=True)
    )
    return f"""
SELECT queue, minute, {", ".join(COUNTED)}, redelivered, change, {cells},
       total_max_ms, to_date(minute) AS date
FROM (
  SELECT queue, {start} AS minute,
         {counts},
         CAST(count_if(event = 'delivered' AND delivery > 1) AS BIGINT) AS redelivered,
         CAST(sum(change) AS BIGINT) AS change,
         percentile(wait_ms, array(0.5, 0.95, 0.99)) AS wait,
         percentile(process_ms, array(0.5, 0.95, 0.99)) AS process,
         max(total_ms) AS total_max_ms
  FROM (SELECT *, {by} AS minute FROM ({PARTS}) p) q
  GROUP BY queue, minute
) m
"""


MINUTES: Final = minutes()
STREAMED: Final = minutes("window(ts, '1 minute')", "minute.start")

_LESS: Final = ", ".join(
    f"m.{event} - coalesce(o.{event}, 0) AS {event}" if event in ENDED else f"m.{event}"
    for event in COUNTED
)
_OFF: Final = ", ".join(
    f"CAST(count_if(outcome = '{event}') AS BIGINT) AS {event}"
    for event in COUNTED
    if event in ENDED
)
_AGAIN: Final = ", ".join(
    f"CASE WHEN o.events IS NULL THEN m.{name} "
    f"ELSE element_at(a.{name[:-7]}, {place}) END AS {name}"
    for place, name in zip((1, 2, 3) * 2, LATENCIES, strict=True)
)

# What a stream wrote as `minutes` (gold) and `ends` (silver), with one end for each job: of
# the minutes that have an end too many (`extra`) the percentiles are made again (H3.1, H4.7).
ONCE: Final = f"""
WITH timed AS (
  SELECT e.*, date_trunc('minute', e.ended_at) AS minute, x.seq IS NOT NULL AS is_extra
  FROM ends e LEFT JOIN extra x ON x.node = e.node AND x.seq = e.seq
), off AS (
  SELECT queue, minute, count(*) AS events, {_OFF} FROM timed WHERE is_extra GROUP BY queue, minute
), again AS (
  SELECT queue, minute,
         percentile(wait_ms, array(0.5, 0.95, 0.99)) AS wait,
         percentile(process_ms, array(0.5, 0.95, 0.99)) AS process,
         max(total_ms) AS total_max_ms
  FROM timed t
  WHERE NOT is_extra
  AND EXISTS (SELECT 1 FROM off o WHERE o.queue = t.queue AND o.minute = t.minute)
  GROUP BY queue, minute
), less AS (
  SELECT m.queue, m.minute, {_LESS}, m.redelivered,
         CAST(m.change + coalesce(o.events, 0) AS BIGINT) AS change,
         {_AGAIN},
         CASE WHEN o.events IS NULL THEN m.total_max_ms ELSE a.total_max_ms END AS total_max_ms,
         m.date
  FROM minutes m
  LEFT JOIN off o ON o.queue = m.queue AND o.minute = m.minute
  LEFT JOIN again a ON a.queue = m.queue AND a.minute = m.minute
)
SELECT * FROM less WHERE {" + ".join(COUNTED)} > 0
"""

# The table `minutes` (gold as written) with what needs all of it: the number of
# unfinished jobs at the end of each minute (H3.4).
BACKLOG: Final = """
SELECT *, CAST(sum(change) OVER (PARTITION BY queue ORDER BY minute) AS BIGINT) AS backlog
FROM minutes
"""
