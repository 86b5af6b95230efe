"""The report's queries, in SQL for both Spark and duckdb (duck.py has the dialect).

`events` (bronze: one row per event) and `ends` (silver.py) become `jobs` (one row per job, also of
open ones) and `seconds` (one row per queue and second); the report's questions follow. Aggregates
work on integers only, which Spark sums in place; strings would be copied.
"""

from __future__ import annotations

from typing import Final

# The jobs that a single end event does not describe: without an end, with several, known by
# several nodes, or in several queues (dead letters). As hashes of their ids; a hash that two
# jobs share makes both odd.
ODD: Final = """
SELECT job FROM (
  SELECT xxhash64(job_id) AS job, xxhash64(node) AS place, xxhash64(queue) AS line,
         CASE WHEN event IN ('acked', 'cancelled', 'dead', 'deleted', 'expired') THEN 1 ELSE 0
         END AS is_end
  FROM events WHERE job_id <> ''
) e GROUP BY job HAVING sum(is_end) <> 1 OR min(place) <> max(place)
  OR min(line) <> max(line)
"""

# One row per job, also of those not finished. Odd jobs are assembled from all their events:
# stamps of an end and the events themselves say the same; where one is missing the other
# fills in. `timeouts` are the returns to the queue without a NACK, whatever their cause.
# A job that died keeps its id in the queue of dead letters: it is one job, which ended (H6.7).
ODD_JOBS: Final = """
WITH e AS (
  SELECT job_id, queue, event, size, deliveries, nacks, timeouts, reason, ts, node, seq,
         CASE WHEN event LIKE 'run-%' OR event IN ('cancelled', 'replayed') THEN 0
              ELSE delivery END AS handed,
         unix_micros(ts) AS us,
         CASE WHEN event = 'added' THEN unix_micros(ts) + delay_ms * 1000
              ELSE unix_micros(enqueued_at) END AS due_us,
         CASE WHEN event = 'added' THEN unix_micros(ts)
              ELSE unix_micros(enqueued_at) - delay_ms * 1000 END AS in_us,
         CASE WHEN event = 'delivered' THEN unix_micros(ts)
              ELSE unix_micros(first_delivered_at) END AS first_us,
         CASE WHEN event = 'delivered' THEN unix_micros(ts)
              ELSE unix_micros(last_delivered_at) END AS last_us,
         CASE WHEN event <> 'deleted' THEN 0 WHEN reason = 'admin_deleted' THEN 1 ELSE 2
         END AS deletion
  FROM events WHERE job_id <> ''
  AND EXISTS (SELECT 1 FROM odd o WHERE o.job = xxhash64(events.job_id))
), t AS (
  SELECT job_id, queue,
         CASE WHEN event IN ('cancelled', 'dead', 'deleted') THEN reason END AS reason,
         row_number() OVER (
           PARTITION BY job_id ORDER BY
             CASE WHEN event = 'dead' THEN 1 WHEN event = 'acked' THEN 2
                  WHEN event = 'cancelled' THEN 3 WHEN deletion = 1 THEN 4
                  WHEN event = 'expired' THEN 5 WHEN deletion = 2 THEN 6
                  WHEN event = 'added' THEN 7 ELSE 8 END, ts, node, seq
         ) AS place
  FROM e
), g AS (
  SELECT job_id,
         min(us) AS seen_us,
         min(in_us) AS in_us,
         min(due_us) AS due_us,
         min(first_us) AS first_us,
         max(last_us) AS last_us,
         min(CASE WHEN event = 'acked' THEN us END) AS acked_us,
         min(CASE WHEN event = 'dead' THEN us END) AS dead_us,
         min(CASE WHEN event = 'cancelled' THEN us END) AS cancelled_us,
         min(CASE WHEN deletion = 1 THEN us END) AS deleted_us,
         min(CASE WHEN event = 'expired' THEN us END) AS expired_us,
         min(CASE WHEN deletion = 2 THEN us END) AS dropped_us,
         greatest(max(deliveries), max(handed), count_if(event = 'delivered')) AS deliveries,
         greatest(max(nacks), count_if(event = 'nacked')) AS nacks,
         greatest(max(timeouts), count_if(event = 'requeued')) AS timeouts,
         max(size) AS size
  FROM e GROUP BY job_id
), o AS (
  SELECT *,
         coalesce(dead_us, acked_us, cancelled_us, deleted_us, expired_us, dropped_us) AS ended_us,
         CASE WHEN dead_us IS NOT NULL THEN 'dead'
              WHEN acked_us IS NOT NULL THEN 'acked'
              WHEN cancelled_us IS NOT NULL THEN 'cancelled'
              WHEN deleted_us IS NOT NULL THEN 'deleted'
              WHEN expired_us IS NOT NULL THEN 'expired'
              WHEN dropped_us IS NOT NULL THEN 'deleted'
              ELSE 'open' END AS outcome
  FROM g
)
SELECT o.job_id, t.queue,
       timestamp_micros(in_us) AS added_at,
       timestamp_micros(due_us) AS enqueued_at,
       timestamp_micros(first_us) AS first_delivered_at,
       timestamp_micros(last_us) AS last_delivered_at,
       timestamp_micros(CASE WHEN outcome = 'acked' THEN acked_us END) AS acked_at,
       timestamp_micros(ended_us) AS ended_at,
       outcome,
       CAST(deliveries AS INT) AS deliveries,
       CAST(nacks AS INT) AS nacks,
       CAST(timeouts AS INT) AS timeouts,
       size,
       CASE WHEN first_us < due_us THEN 0e0 ELSE (first_us - due_us) / 1e3 END AS wait_ms,
       CASE WHEN outcome IN ('acked', 'dead') THEN
         CASE WHEN ended_us < last_us THEN 0e0 ELSE (ended_us - last_us) / 1e3 END
       END AS process_ms,
       CASE WHEN ended_us < in_us THEN 0e0 ELSE (ended_us - in_us) / 1e3 END AS total_ms,
       t.reason,
       to_date(timestamp_micros(coalesce(in_us, seen_us))) AS date
FROM o JOIN t ON t.job_id = o.job_id AND t.place = 1
"""
JOBS: Final = f"""{ODD_JOBS}
UNION ALL
SELECT job_id, queue, added_at, enqueued_at, first_delivered_at, last_delivered_at,
       CASE WHEN outcome = 'acked' THEN ended_at END AS acked_at,
       ended_at, outcome, deliveries, nacks, timeouts, size, wait_ms, process_ms, total_ms,
       CASE WHEN outcome IN ('cancelled', 'dead', 'deleted') THEN reason END AS reason,
       to_date(coalesce(added_at, ended_at)) AS date
FROM ends WHERE NOT EXISTS (SELECT 1 FROM odd o WHERE o.job = xxhash64(ends.job_id))
"""

# Silver of all nodes (H1.6): `once` has its rows as the ends alone say, `whole` is ODD_JOBS.
SILVER: Final = """
SELECT o.job_id, o.queue,
       CASE WHEN w.job_id IS NULL THEN o.added_at ELSE w.added_at END AS added_at,
       CASE WHEN w.job_id IS NULL THEN o.enqueued_at ELSE w.enqueued_at END AS enqueued_at,
       coalesce(w.first_delivered_at, o.first_delivered_at) AS first_delivered_at,
       coalesce(w.last_delivered_at, o.last_delivered_at) AS last_delivered_at,
       o.ended_at, o.outcome,
       coalesce(w.deliveries, o.deliveries) AS deliveries,
       coalesce(w.nacks, o.nacks) AS nacks, coalesce(w.timeouts, o.timeouts) AS timeouts,
       coalesce(w.size, o.size) AS size,
       CASE WHEN w.job_id IS NULL THEN o.wait_ms ELSE w.wait_ms END AS wait_ms,
       CASE WHEN w.job_id IS NULL THEN o.process_ms ELSE w.process_ms END AS process_ms,
       CASE WHEN w.job_id IS NULL THEN o.total_ms ELSE w.total_ms END AS total_ms,
       o.reason, o.node, o.seq, o.date
FROM once o LEFT JOIN whole w ON w.job_id = o.job_id
"""

# The events that gold counts, `once`, whose ends have the instants of all nodes (H1.6).
COUNTED: Final = """
SELECT o.ts, o.queue, o.event, o.delivery, o.job_id, o.delay_ms,
       CASE WHEN w.job_id IS NULL THEN o.enqueued_at ELSE w.enqueued_at END AS enqueued_at,
       coalesce(w.first_delivered_at, o.first_delivered_at) AS first_delivered_at,
       coalesce(w.last_delivered_at, o.last_delivered_at) AS last_delivered_at
FROM once o LEFT JOIN whole w ON w.job_id = o.job_id
  AND o.event IN ('acked', 'cancelled', 'dead', 'deleted', 'expired')
"""

# One row per redelivery, the only meaning of the word in the report: a delivery of a job other than
# its first, on any node, with the last reason before it why the job was requeued. A copy that a
# node queues and nobody takes is none (SPEC H6.1).
AGAIN: Final = """
WITH e AS (
  SELECT job_id, queue, event, ts, node, seq,
         CASE WHEN event = 'nacked' THEN 'nack' WHEN event = 'requeued' THEN reason END AS cause
  FROM events WHERE event IN ('delivered', 'nacked', 'requeued')
  AND EXISTS (SELECT 1 FROM jobs j WHERE j.job_id = events.job_id AND j.deliveries > 1)
), w AS (
  SELECT *,
         row_number() OVER (
           PARTITION BY job_id, CASE WHEN event = 'delivered' THEN 1 ELSE 0 END
           ORDER BY ts, node, seq
         ) AS place,
         count(cause) OVER (
           PARTITION BY job_id ORDER BY ts, node, seq
           ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
         ) AS returned
  FROM e
)
SELECT job_id, queue, ts, coalesce(told, 'no reason known') AS cause
FROM (SELECT *, max(cause) OVER (PARTITION BY job_id, returned) AS told FROM w) t
WHERE event = 'delivered' AND place > 1
"""

# The queues that have a line of their own; the others share number -1.
SHOWN: Final = """
SELECT queue, row_number() OVER (ORDER BY jobs DESC, queue) - 1 AS place
FROM (
  SELECT queue, sum(jobs) AS jobs FROM (
    SELECT queue, 1 AS jobs FROM jobs UNION ALL SELECT queue, 0 FROM seconds
  ) p GROUP BY queue
) q
ORDER BY jobs DESC, queue LIMIT {limit}
"""

# One row per queue and second in which something happened. Jobs that were added or ended are those
# of `jobs`, each with the end that counts; deliveries and returns are events. A wait counts in the
# second of the first delivery, a process time in the second of the end; `backlog` is the number of
# unfinished jobs at the end of the second.
SECONDS: Final = """
WITH parts AS (
  SELECT queue, unix_seconds(ts) AS s, event,
         0 AS change, CAST(NULL AS DOUBLE) AS wait_ms, CAST(NULL AS DOUBLE) AS process_ms
  FROM events WHERE event IN ('delivered', 'nacked', 'requeued') AND job_id <> ''
  UNION ALL
  SELECT queue, unix_seconds(added_at), 'added', 1, NULL, NULL
  FROM jobs WHERE added_at IS NOT NULL
  UNION ALL
  SELECT queue, unix_seconds(ended_at), outcome,
         CASE WHEN added_at IS NULL THEN 0 ELSE -1 END, NULL, process_ms
  FROM jobs WHERE ended_at IS NOT NULL
  UNION ALL
  SELECT queue, unix_seconds(first_delivered_at), '', 0, wait_ms, NULL
  FROM jobs WHERE first_delivered_at IS NOT NULL
  UNION ALL
  SELECT queue, unix_seconds(ts), 'again', 0, NULL, NULL FROM again
), sums AS (
  SELECT queue, s,
         CAST(count_if(event = 'added') AS BIGINT) AS added,
         CAST(count_if(event = 'delivered') AS BIGINT) AS delivered,
         CAST(count_if(event = 'acked') AS BIGINT) AS acked,
         CAST(count_if(event = 'nacked') AS BIGINT) AS nacked,
         CAST(count_if(event = 'requeued') AS BIGINT) AS requeued,
         CAST(count_if(event = 'expired') AS BIGINT) AS expired,
         CAST(count_if(event = 'dead') AS BIGINT) AS dead,
         CAST(count_if(event = 'deleted') AS BIGINT) AS deleted,
         CAST(count_if(event = 'cancelled') AS BIGINT) AS cancelled,
         CAST(count_if(event = 'again') AS BIGINT) AS redelivered,
         sum(change) AS change,
         percentile(wait_ms, array(0.5, 0.95, 0.99)) AS wait,
         percentile(process_ms, array(0.5, 0.95, 0.99)) AS process
  FROM parts GROUP BY queue, s
)
SELECT queue, timestamp_seconds(s) AS second,
       added, delivered, acked, nacked, requeued, expired, dead, deleted, cancelled, redelivered,
       CAST(sum(change) OVER (PARTITION BY queue ORDER BY s) AS BIGINT) AS backlog,
       element_at(wait, 1) AS wait_p50_ms, element_at(wait, 2) AS wait_p95_ms,
       element_at(wait, 3) AS wait_p99_ms,
       element_at(process, 1) AS process_p50_ms, element_at(process, 2) AS process_p95_ms,
       element_at(process, 3) AS process_p99_ms,
       to_date(timestamp_seconds(s)) AS date
FROM sums
"""

# Is the history whole? `missing` counts numbers that no segment has: events dropped
# because the buffers were full, or lost with a segment. A start that follows a start
# means that the node was killed: what was still in memory then has no number here. A last
# run without a stop (`is_open`) still goes on, or was the last one for a kill.
COMPLETENESS: Final = """
WITH runs AS (
  SELECT node, event, seq, lag(event) OVER (PARTITION BY node ORDER BY seq) AS before
  FROM events WHERE event IN ('started', 'stopped')
), kills AS (
  SELECT node, count_if(event = 'started' AND before = 'started') AS kills,
         max_by(event, seq) AS last_mark
  FROM runs GROUP BY node
)
SELECT n.node, first_seq, last_seq, events,
       last_seq - first_seq + 1 - events AS missing,
       coalesce(kills, 0) AS kills,
       coalesce(last_mark, 'started') = 'started' AS is_open
FROM (SELECT node, min(seq) AS first_seq, max(seq) AS last_seq, count(*) AS events
      FROM events GROUP BY node) n
LEFT JOIN kills ON n.node = kills.node
ORDER BY n.node
"""

SPAN: Final = (
    "SELECT unix_seconds(min(second)) AS first_s, unix_seconds(max(second)) AS last_s FROM seconds"
)

# Jobs and times are those of `jobs`; deliveries are events, also of a dead letter in its own queue.
QUEUES: Final = """
SELECT queue, CAST(sum(jobs) AS BIGINT) AS jobs,
       count_if(outcome = 'acked') AS acked, count_if(outcome = 'dead') AS dead,
       count_if(outcome = 'expired') AS expired, count_if(outcome = 'deleted') AS deleted,
       count_if(outcome = 'cancelled') AS cancelled, count_if(outcome = 'open') AS open,
       CAST(sum(delivered) AS BIGINT) AS deliveries,
       CAST(sum(redelivered) AS BIGINT) AS redelivered,
       percentile(wait_ms, array(0.5, 0.95, 0.99, 1e0)) AS wait_ms,
       percentile(process_ms, array(0.5, 0.95, 0.99, 1e0)) AS process_ms
FROM (
  SELECT queue, 1 AS jobs, outcome, 0 AS delivered, 0 AS redelivered, wait_ms, process_ms FROM jobs
  UNION ALL
  SELECT queue, 0, '', delivered, redelivered, NULL, NULL FROM seconds
) p
GROUP BY GROUPING SETS ((queue), ()) ORDER BY jobs DESC, queue
"""

# {first_s} and {width_s}: the buckets of the time axis; `place` is that of SHOWN
RATES: Final = """
SELECT coalesce(q.place, -1) AS place,
       CAST(floor((unix_seconds(second) - {first_s}) / {width_s}) AS BIGINT) AS bucket,
       CAST(sum(added) AS BIGINT) AS added, CAST(sum(delivered) AS BIGINT) AS delivered,
       CAST(sum(acked) AS BIGINT) AS acked, CAST(sum(redelivered) AS BIGINT) AS redelivered,
       CAST(sum(dead) AS BIGINT) AS dead
FROM seconds s LEFT JOIN shown q ON q.queue = s.queue
GROUP BY 1, 2 ORDER BY 1, 2
"""

# The changes in the number of open jobs. They end at the present number of open jobs.
CHANGES: Final = """
SELECT coalesce(q.place, -1) AS place, bucket, CAST(sum(change) AS BIGINT) AS change
FROM (
  SELECT queue, 1 AS change,
         greatest(0, CAST(floor((unix_seconds(coalesce(added_at, first_delivered_at, ended_at))
           - {first_s}) / {width_s}) AS BIGINT)) AS bucket
  FROM jobs
  UNION ALL
  SELECT queue, -1, greatest(0,
         CAST(floor((unix_seconds(ended_at) - {first_s}) / {width_s}) AS BIGINT))
  FROM jobs WHERE ended_at IS NOT NULL
) c LEFT JOIN shown q ON q.queue = c.queue
GROUP BY 1, 2 ORDER BY 1, 2
"""

LATENCIES: Final = """
SELECT place, bucket, percentile(wait_ms, array(0.5, 0.95, 0.99)) AS wait_ms,
       percentile(process_ms, array(0.5, 0.95, 0.99)) AS process_ms
FROM (
  SELECT coalesce(q.place, -1) AS place, l.bucket AS bucket, wait_ms, process_ms FROM (
    SELECT queue,
           CAST(floor((unix_seconds(first_delivered_at) - {first_s}) / {width_s}) AS BIGINT)
             AS bucket,
           wait_ms, CAST(NULL AS DOUBLE) AS process_ms
    FROM jobs WHERE wait_ms IS NOT NULL
    UNION ALL
    SELECT queue, CAST(floor((unix_seconds(ended_at) - {first_s}) / {width_s}) AS BIGINT), NULL,
           process_ms
    FROM jobs WHERE process_ms IS NOT NULL
  ) l LEFT JOIN shown q ON q.queue = l.queue
) p GROUP BY GROUPING SETS ((place, bucket), (bucket)) ORDER BY place, bucket
"""

RETURNS: Final = """
SELECT queue, cause, count(*) AS returns FROM again GROUP BY queue, cause ORDER BY queue, cause
"""

# Starts after a kill, with the last event before it; the last event of each node.
KILLS: Final = """
WITH runs AS (
  SELECT node, event, seq, lag(event) OVER (PARTITION BY node ORDER BY seq) AS before
  FROM events WHERE event IN ('started', 'stopped')
), kills AS (
  SELECT node, seq FROM runs WHERE event = 'started' AND before = 'started'
)
SELECT k.node AS node, unix_micros(max(e.ts)) AS killed
FROM kills k JOIN events e ON e.node = k.node AND e.seq < k.seq
GROUP BY k.node, k.seq ORDER BY killed
"""

LAST: Final = "SELECT node, unix_micros(max(ts)) AS last FROM events GROUP BY node"

SLOWEST: Final = """
SELECT job_id, queue, outcome, unix_micros(added_at) AS added_us, deliveries,
       wait_ms, process_ms, total_ms
FROM jobs WHERE total_ms IS NOT NULL ORDER BY total_ms DESC, job_id LIMIT {limit}
"""

# Reasons are equal if they differ only in a path, an address, an id or a number: {reason} is PLAIN.
# Those after the first {limit} are one row for each queue of SHOWN, and one for all other queues.
DEAD_REASONS: Final = """
WITH d AS (
  SELECT job_id, queue, ended_at,
         coalesce(nullif({reason}, ''), '(no reason given)') AS reason
  FROM jobs WHERE outcome = 'dead'
), l AS (
  SELECT *, max(ended_at) OVER (PARTITION BY queue, reason) AS latest FROM d
), g AS (
  SELECT queue, reason, count(*) AS jobs, max(latest) AS latest,
         max(CASE WHEN ended_at = latest THEN job_id END) AS latest_job
  FROM l GROUP BY queue, reason
), p AS (
  SELECT g.*, row_number() OVER (ORDER BY jobs DESC, queue, reason) AS place FROM g
)
SELECT queue, reason, jobs, unix_micros(latest) AS latest_us, latest_job, 1 AS reasons,
       place AS line
FROM p WHERE place <= {limit}
UNION ALL
SELECT s.queue, NULL, CAST(sum(p.jobs) AS BIGINT), unix_micros(max(p.latest)), NULL,
       CAST(count(*) AS INT), {limit} + 1 + max(coalesce(s.place, {limit}))
FROM p LEFT JOIN shown s ON s.queue = p.queue
WHERE p.place > {limit} GROUP BY s.queue
ORDER BY line
"""
PLACES: Final = (  # pattern of a job's particulars, and its replacement
    (r"(?:[A-Za-z]:)?(?:/[^/ :,;()<>]+){2,}/?", "<path>"),
    (r"0x[0-9a-fA-F]+", "<address>"),
    (r"D-[0-9a-f]{8}-[A-Za-z0-9+/.~_-]{24}-[0-9a-f]{4}", "<job>"),
    (r"[0-9]{4,}", "<number>"),
)


def plain(column: str) -> str:
    """The column without a job's particulars."""
    for pattern, name in PLACES:
        column = f"regexp_replace({column}, '{pattern}', '{name}')"
    return column


# Jobs most often nacked or not finished in time, whatever became of them.
FAILING: Final = """
SELECT j.job_id AS job_id, queue, outcome, unix_micros(added_at) AS added_us, deliveries,
       nacks, coalesce(r.times, 0) AS redelivered, reason
FROM jobs j LEFT JOIN (SELECT job_id, count(*) AS times FROM again GROUP BY job_id) r
  ON r.job_id = j.job_id
WHERE nacks > 0 OR r.times > 0
ORDER BY nacks + redelivered DESC, deliveries DESC, j.job_id LIMIT {limit}
"""

# The events of each node: also second ends, and what became of dead letters.
NODES: Final = """
SELECT node, count_if(event = 'added') AS added, count_if(event = 'delivered') AS delivered,
       count_if(event = 'acked') AS acked,
       count_if(event IN ('nacked', 'requeued')) AS returned,
       count_if(event = 'dead') AS dead
FROM events GROUP BY node ORDER BY node
"""
