"""Gold: one row per queue and minute, in SQL that Spark and duckdb both take (SPEC H3).

Decides what is counted in which minute. Counts are of events, in the minute of the event;
percentiles are of the jobs that ended in the minute. Knows no engine, no files.
"""

from __future__ import annotations

from typing import Final

from tuque.spark.silver import ENDED

COUNTED: Final = "added delivered acked nacked requeued expired dead deleted".split()
LATENCIES: Final = (
    "wait_p50_ms wait_p95_ms wait_p99_ms process_p50_ms process_p95_ms process_p99_ms"
)

# What each event adds to its minute. `change` is that of the number of unfinished jobs.
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
         coalesce(delay_ms, CAST(0 AS BIGINT)) * 1000 AS delay_us
  FROM events WHERE job_id <> ''
) e
"""


def minutes(by: str = "date_trunc('minute', ts)", start: str = "minute") -> str:
    """The query over `events`; `by` cuts time into minutes and `start` is where one begins.

    A stream needs Spark's own window there, as the watermark follows no other expression.
    """
    counts = ",\n         ".join(
        f"CAST(count_if(event = '{event}') AS BIGINT) AS {event}" for event in COUNTED
    )
    return f"""
SELECT queue, minute, {", ".join(COUNTED)}, redelivered, change,
       element_at(wait, 1) AS wait_p50_ms, element_at(wait, 2) AS wait_p95_ms,
       element_at(wait, 3) AS wait_p99_ms,
       element_at(process, 1) AS process_p50_ms, element_at(process, 2) AS process_p95_ms,
       element_at(process, 3) AS process_p99_ms,
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

# The table `minutes` (gold as it is written) with what needs all of it: the number of
# unfinished jobs at the end of each minute (H3.4).
BACKLOG: Final = """
SELECT *, CAST(sum(change) OVER (PARTITION BY queue ORDER BY minute) AS BIGINT) AS backlog
FROM minutes
"""
