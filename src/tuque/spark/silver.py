"""Silver: one row per finished job, in SQL for both Spark and duckdb (SPEC H1, H2).

Decides what a row is, and which of several ends of a job counts. Knows no engine, no files. The
event of an end has the job's whole life (E1.2): a row is a filter, never a group-by.
"""

from __future__ import annotations

from typing import Final

ENDED: Final = "('acked', 'cancelled', 'dead', 'deleted', 'expired')"

# All ends in `events`, even several per job. Works for a stream: no state.
ENDS: Final = f"""
SELECT job_id, queue,
       timestamp_micros(due_us - delay_us) AS added_at,
       enqueued_at, first_delivered_at, last_delivered_at, ts AS ended_at,
       event AS outcome, deliveries, nacks, timeouts, size,
       CASE WHEN first_us < due_us THEN 0e0 ELSE (first_us - due_us) / 1e3 END AS wait_ms,
       CASE WHEN event IN ('acked', 'dead') THEN
         CASE WHEN ended_us < last_us THEN 0e0 ELSE (ended_us - last_us) / 1e3 END
       END AS process_ms,
       CASE WHEN ended_us < due_us - delay_us THEN 0e0
            ELSE (ended_us - due_us + delay_us) / 1e3 END AS total_ms,
       reason, node, seq,
       to_date(ts) AS date
FROM (
  SELECT job_id, queue, event, ts, enqueued_at, first_delivered_at, last_delivered_at,
         deliveries, nacks, timeouts, size, reason, node, seq,
         unix_micros(ts) AS ended_us,
         unix_micros(enqueued_at) AS due_us,
         unix_micros(first_delivered_at) AS first_us,
         unix_micros(last_delivered_at) AS last_us,
         delay_ms * 1000 AS delay_us
  FROM events WHERE event IN {ENDED}
) e
"""

# Which end counts (H2.1): results of the work precede results of copies.
RANK: Final = """
CASE outcome WHEN 'dead' THEN 1 WHEN 'acked' THEN 2 WHEN 'cancelled' THEN 3 WHEN 'expired' THEN 5
     ELSE CASE WHEN reason = 'admin_deleted' THEN 4 ELSE 6 END END
"""

# Of the rows in `ends`: the jobs that end more than once, as hashes. They are few, so that
# only they are sorted; a hash that two jobs share costs time and changes nothing.
TWICE: Final = """
SELECT job FROM (SELECT xxhash64(job_id) AS job FROM ends) e GROUP BY job HAVING count(*) > 1
"""

COLUMNS: Final = """job_id, queue, added_at, enqueued_at, first_delivered_at, last_delivered_at,
       ended_at, outcome, deliveries, nacks, timeouts, size, wait_ms, process_ms, total_ms,
       reason, node, seq, date"""

_PLACED: Final = f"""
  SELECT *, row_number() OVER (
    PARTITION BY job_id ORDER BY {RANK}, ended_at, node, seq
  ) AS place
  FROM ends WHERE EXISTS (SELECT 1 FROM twice t WHERE t.job = xxhash64(ends.job_id))
"""

# The ends that do not count, as their events.
EXTRA: Final = f"SELECT node, seq FROM ({_PLACED}) ranked WHERE place > 1"

# One row per job (H2), from `ends` and `twice`.
ONCE: Final = f"""
SELECT {COLUMNS}
FROM ends WHERE NOT EXISTS (SELECT 1 FROM twice t WHERE t.job = xxhash64(ends.job_id))
UNION ALL
SELECT {COLUMNS} FROM ({_PLACED}) ranked WHERE place = 1
"""
