"""The total-queue check: clients' logs against the broker's events, at any size (SPEC H5).

Decides what is broken. Both histories become one row per job, integers only, which is judged; knows
neither engine nor terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recorder import COLUMNS, Recorder
from tuque.spark.engines import Engine, read_events

__all__ = ["CHECKS", "COLUMNS", "Recorder", "Verdict", "Worry", "verify"]

EXAMPLES: Final = 5
NO_EVENTS: Final = """
SELECT CAST(NULL AS STRING) AS job_id, CAST(NULL AS STRING) AS event,
       CAST(NULL AS STRING) AS node, CAST(NULL AS BIGINT) AS seq,
       CAST(NULL AS BIGINT) AS retry_ms, timestamp_micros(CAST(0 AS BIGINT)) AS ts
WHERE false
"""

# Deliveries after the ack are judged from the last `quiet` on, if there is one.
QUIET: Final = """
SELECT coalesce(max(at_us), CAST(0 AS BIGINT)) AS quiet_us FROM clients WHERE action = 'quiet'
"""

FACTS: Final = """
SELECT job_id,
       sum(added) AS added, sum(got) AS got, sum(done) AS done, sum(told) AS told,
       sum(handed) AS handed, sum(ended) AS ended, max(once) AS once,
       max(asked_us) AS asked_us, min(acked_us) AS acked_us,
       max(delivered_us) AS delivered_us, min(ended_us) AS ended_us,
       min(mark) AS mark_min, max(mark) AS mark_max
FROM (
  SELECT job_id,
         CASE WHEN action = 'added' THEN 1 ELSE 0 END AS added,
         CASE WHEN action = 'got' THEN 1 ELSE 0 END AS got,
         CASE WHEN action IN ('acking', 'acked', 'left') THEN 1 ELSE 0 END AS done,
         0 AS told, 0 AS handed, 0 AS ended,
         CASE WHEN retry_s = 0 THEN 1 ELSE 0 END AS once,
         CASE WHEN action = 'got' THEN coalesce(asked_us, at_us) END AS asked_us,
         CASE WHEN action = 'acked' THEN at_us END AS acked_us,
         CAST(NULL AS BIGINT) AS delivered_us, CAST(NULL AS BIGINT) AS ended_us,
         CASE WHEN action = 'added' AND mark IS NOT NULL THEN xxhash64(mark) END AS mark
  FROM clients WHERE job_id IS NOT NULL
  UNION ALL
  SELECT job_id, 0, 0, 0,
         CASE WHEN event = 'added' THEN 1 ELSE 0 END,
         CASE WHEN event = 'delivered' THEN 1 ELSE 0 END,
         CASE WHEN event IN ('acked', 'cancelled', 'dead', 'expired', 'deleted') THEN 1 ELSE 0 END,
         CASE WHEN retry_ms = 0 THEN 1 ELSE 0 END,
         NULL, NULL,
         CASE WHEN event = 'delivered' THEN unix_micros(ts) END,
         CASE WHEN event IN ('acked', 'cancelled', 'dead') THEN unix_micros(ts) END,
         NULL
  FROM events WHERE job_id <> ''
) f GROUP BY job_id
"""

# {open}: whether jobs that the broker still has are fine; {quiet} and {grace} in microseconds.
# Redeliveries during the trouble are allowed by at least once.
JUDGED: Final = """
SELECT job_id,
       CASE WHEN added > 0 AND once = 0 AND done + ended = 0
                 AND NOT ({open} AND told > 0) THEN 1 ELSE 0 END AS lost,
       CASE WHEN got > 0 AND added + told = 0 THEN 1 ELSE 0 END AS unexpected,
       CASE WHEN once = 1 AND greatest(got, handed) > 1 THEN 1 ELSE 0 END AS duplicated,
       CASE WHEN (asked_us > acked_us + {grace} AND asked_us >= {quiet})
              OR (delivered_us > ended_us + {grace} AND delivered_us >= {quiet})
            THEN 1 ELSE 0 END AS after_ack,
       CASE WHEN told > 1 OR mark_min <> mark_max THEN 1 ELSE 0 END AS added_twice,
       CASE WHEN once = 0 AND greatest(got, handed) > 1 THEN 1 ELSE 0 END AS redelivered,
       CASE WHEN added > 0 OR told > 0 THEN 1 ELSE 0 END AS is_job,
       CASE WHEN added > 0 THEN 1 ELSE 0 END AS is_known,
       CASE WHEN added > 0 AND done > 0 THEN 1 ELSE 0 END AS is_done
FROM facts
"""

TOTALS: Final = """
SELECT coalesce(sum(is_job), 0) AS jobs, coalesce(sum(is_known), 0) AS known,
       coalesce(sum(is_done), 0) AS done,
       coalesce(sum(lost), 0) AS lost, coalesce(sum(duplicated), 0) AS duplicated,
       coalesce(sum(after_ack), 0) AS after_ack, coalesce(sum(added_twice), 0) AS added_twice,
       coalesce(sum(redelivered), 0) AS redelivered, coalesce(sum(unexpected), 0) AS unexpected
FROM judged
"""

# Jobs that no client added, unless they have the mark of an ADDJOB whose reply was lost.
UNEXPECTED: Final = """
SELECT job_id FROM judged WHERE unexpected = 1 AND job_id NOT IN (
  SELECT g.job_id FROM clients g JOIN clients a ON g.mark = a.mark
  WHERE g.action = 'got' AND a.action = 'adding' AND g.job_id IS NOT NULL
)
"""

# One mark, several jobs: a producer's retry was added as well.
TWICE: Final = """
SELECT mark FROM clients WHERE action = 'added' AND mark IS NOT NULL
GROUP BY mark HAVING min(xxhash64(job_id)) <> max(xxhash64(job_id))
"""

NUMBERS: Final = """
SELECT node, CAST(max(seq) - min(seq) + 1 - count(seq) AS BIGINT) AS missing,
       CAST(sum(times) - count(seq) AS BIGINT) AS doubled
FROM (SELECT node, seq, count(*) AS times FROM events WHERE node IS NOT NULL GROUP BY node, seq) n
GROUP BY node ORDER BY node
"""

CHECKS: Final = {
    "lost": "added, and neither acked nor ended nor left",
    "unexpected": "handed out, and nobody added it",
    "duplicated": "RETRY 0, and handed out more than once",
    "after ack": "handed out again after the ack was answered",
    "added twice": "one mark with several jobs, or one job added more than once",
    "seq gaps": "events that no segment has",
    "seq doubled": "events that stand in two segments",
}


@dataclass
class Worry:
    """A failed check: how often, and where."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass
class Verdict:
    """The result of the check."""

    jobs: int
    known: int  # added by a client that logs
    done: int
    redelivered: int  # no fault: at least once allows it
    worries: dict[str, Worry]

    @property
    def is_broken(self) -> bool:
        """Whether any check failed."""
        return any(worry.count for worry in self.worries.values())


def verify(
    engine: Engine,
    logs: Sequence[str],
    segments: Sequence[str],
    *,
    grace_us: int = 0,
    open_is_fine: bool = False,
) -> Verdict:
    """Judge the clients' logs (JSON lines or Parquet) against the broker's segments, if any.

    `grace_us`: how long after its ack a job may still come, for clocks that differ.
    """
    engine.read_log("clients", logs, COLUMNS)
    if segments:
        read_events(engine, segments)
    else:
        engine.view("events", NO_EVENTS)
    engine.view("facts", FACTS)
    quiet_us = engine.rows(QUIET)[0]["quiet_us"]
    engine.keep(
        "judged",
        JUDGED.format(open=str(open_is_fine).lower(), quiet=quiet_us, grace=grace_us),
    )
    totals = {name: int(value) for name, value in engine.rows(TOTALS)[0].items()}
    worries = {
        name: _jobs_with(engine, column, totals[column])
        for name, column in (
            ("lost", "lost"),
            ("duplicated", "duplicated"),
            ("after ack", "after_ack"),
            ("added twice", "added_twice"),
        )
    }
    worries["unexpected"] = Worry()
    if totals["unexpected"]:  # rare, and needs a join of the logs with themselves
        worries["unexpected"] = _rows_of(engine, "unexpected_jobs", UNEXPECTED, "job_id")
    marks = _rows_of(engine, "twice_added", TWICE, "mark")
    twice = worries["added twice"]
    twice.count += marks.count
    twice.examples = (twice.examples + marks.examples)[:EXAMPLES]
    worries |= _numbers(engine.rows(NUMBERS))
    return Verdict(
        totals["jobs"],
        totals["known"],
        totals["done"],
        totals["redelivered"],
        {name: worries[name] for name in CHECKS},
    )


def _jobs_with(engine: Engine, column: str, count: int) -> Worry:
    """The jobs that failed the check of that column."""
    if not count:
        return Worry()
    found = engine.rows(
        f"SELECT job_id FROM judged WHERE {column} = 1 ORDER BY job_id LIMIT {EXAMPLES}"
    )
    return Worry(count, [row["job_id"] for row in found])


def _rows_of(engine: Engine, name: str, query: str, column: str) -> Worry:
    """The number of rows of a query, and the first."""
    count = engine.keep(name, query)
    if not count:
        return Worry()
    found = engine.rows(f"SELECT {column} FROM {name} ORDER BY {column} LIMIT {EXAMPLES}")
    return Worry(count, [row[column] for row in found])


def _numbers(nodes: list[dict[str, Any]]) -> dict[str, Worry]:
    """Gaps and repeats in the numbers of each node."""
    found = {}
    for name, column in (("seq gaps", "missing"), ("seq doubled", "doubled")):
        bad = [node for node in nodes if node[column]]
        examples = [f"{node['node']}: {node[column]}" for node in bad[:EXAMPLES]]
        found[name] = Worry(sum(node[column] for node in bad), examples)
    return found
