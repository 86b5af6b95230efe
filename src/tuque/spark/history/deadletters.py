"""Dead letters: which there are, why, and how to replay them.

The broker has the bodies. A job that died by its work keeps its id, and the node knows why and
where (SPEC W6.5), as it does of the dead tasks of a tube of type tasks (SPEC T48.8). A letter that
DEADLETTER made is a new job, of which only the events tell: the event of its ADDJOB and that of its
job's death are consecutive (SPEC Q10), which joins the two. Needs no Spark: one process can handle
the usual number of letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuque.client.api import to_bytes, to_text
from tuque.client.sync import Client
from tuque.errors import Error, NoJob
from tuque.logtext import writable
from tuque.spark.engines import read_events
from tuque.spark.errors import StreamError
from tuque.spark.history import pipeline
from tuque.spark.history.duck import DuckEngine
from tuque.worker.app.codec import BadBody, decode
from tuque.worker.app.options import DEAD_SUFFIX

if TYPE_CHECKING:
    from tuque.client.api import JobInfo
    from tuque.client.commands.dead import DeadLetter

STEP: Final = 500  # letters sent together
PAGE: Final = 1000
TASKS: Final = "tasks"  # the type of tubes whose dead tasks stay in them
STAYS: Final = "it stays dead: another job has its UNIQUE key"
UNKNOWN: Final = "the queue it came from is not known: give --events, or --to"
KNOWN_S: Final = 30 * 86_400  # how long a replay is remembered
NO_TASK: Final = "(no task call)"
NOT_KNOWN: Final = "(not in the events)"

TABLE: Final = """
CREATE TABLE found (letter VARCHAR, queue VARCHAR, task VARCHAR, args VARCHAR, size INT,
                    died_at TIMESTAMP, reason VARCHAR, is_task BOOLEAN);
CREATE TABLE known (letter VARCHAR, from_queue VARCHAR, died_at TIMESTAMP, reason VARCHAR);
CREATE TABLE names (shown VARCHAR, name BLOB);
"""
# Why letters that DEADLETTER made exist: the event after their ADDJOB, on the same node.
WHY: Final = """
CREATE VIEW why AS
SELECT a.job_id AS letter, d.job_id AS job_id, d.queue AS from_queue, d.reason AS reason
FROM (SELECT node, seq, job_id, queue, reason FROM events WHERE event = 'dead') d
JOIN (SELECT node, seq, job_id FROM events WHERE event = 'added') a
  ON a.node = d.node AND a.seq = d.seq - 1
"""
NO_WHY: Final = """
CREATE VIEW why AS
SELECT NULL::VARCHAR AS letter, NULL::VARCHAR AS job_id, NULL::VARCHAR AS from_queue,
       NULL::VARCHAR AS reason WHERE false
"""
LETTERS: Final = f"""
CREATE TABLE letters AS
SELECT f.letter, f.queue, f.task, f.args, f.size, coalesce(k.died_at, f.died_at) AS died_at,
       f.is_task,
       CASE WHEN f.is_task THEN f.letter ELSE coalesce(k.letter, w.job_id) END AS job_id,
       CASE WHEN f.is_task THEN f.queue ELSE coalesce(k.from_queue, w.from_queue) END AS from_queue,
       coalesce(f.reason, k.reason, w.reason, '{NOT_KNOWN}') AS reason
FROM found f LEFT JOIN known k ON k.letter = f.letter LEFT JOIN why w ON w.letter = f.letter
"""
GROUPS: Final = """
SELECT count(*) AS letters, queue, task, reason,
       CAST(min(died_at) AS VARCHAR) AS first_at, CAST(max(died_at) AS VARCHAR) AS last_at,
       min(letter) AS example
FROM letters WHERE {where}
GROUP BY queue, task, reason ORDER BY letters DESC, queue, task, reason
"""
CHOSEN: Final = """
SELECT letter, queue, coalesce(from_queue, '') AS from_queue, is_task FROM letters WHERE {where}
ORDER BY died_at, letter
"""
TWO_NAMES: Final = (
    "'%s' is the name of a queue, and how another one is shown whose name is not UTF-8: choose one "
    "with --queue"
)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay."""

    found: int
    added: int  # now or before: only the broker knows
    refused: list[str]  # one error each


def dead_queues(client: Client, patterns: tuple[str, ...]) -> list[str]:
    """The queues for dead letters on a node that match the patterns; no tubes of type tasks."""
    wanted = patterns or (f"*{DEAD_SUFFIX}",)
    found = {name for name in client.qscan() if any(fnmatchcase(name, one) for one in wanted)}
    return sorted(found - set(_tubes(client)))


def dead_tubes(client: Client, patterns: tuple[str, ...]) -> list[str]:
    """The tubes of type tasks that a node knows and that match the patterns; by default all."""
    return sorted(
        name
        for name in _tubes(client)
        if not patterns or any(fnmatchcase(name, one) for one in patterns)
    )


def _tubes(client: Client) -> list[str]:
    """The names of all tubes of type tasks that the node knows."""
    names: list[str] = []
    while True:
        page = client.qlist(type=TASKS, offset=len(names), count=PAGE)
        names += [row.name for row in page.rows]
        if not page.rows or len(names) >= page.total:
            return names


def look(
    engine: DuckEngine,
    client: Client,
    queues: list[str],
    tubes: list[str],
    events: pipeline.Segments | None,
) -> int:
    """Make the table `letters` of those in these queues and tubes; returns how many."""
    engine.base.execute(TABLE)
    origins = {name for queue in queues for name in _keep_known(engine, client, queue)}
    _keep_names(engine, [*queues, *tubes, *origins])
    total = 0
    insert = "INSERT INTO found VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    for queue in queues:
        for page in _pages(client.jscan(queue=queue, states=["queued"], full=True, count=PAGE)):
            engine.base.executemany(insert, page)
            total += len(page)
    for tube in tubes:
        listed = list(client.dead_letters(tube, count=PAGE))
        for at in range(0, len(listed), STEP):
            rows = _task_rows(client, tube, listed[at : at + STEP])
            engine.base.executemany(insert, rows)
            total += len(rows)
    if events is None:
        engine.base.execute(NO_WHY)
    else:
        read_events(engine, events.sealed + events.hot)
        engine.base.execute(WHY)
    engine.base.execute(LETTERS)
    return total


def _keep_known(engine: DuckEngine, client: Client, queue: str) -> set[str]:
    """Keep what the node knows of the letters in the queue; returns the queues they came from."""
    origins: set[str] = set()
    listed = list(client.dead_letters(queue, count=PAGE))
    for at in range(0, len(listed), PAGE):
        some = listed[at : at + PAGE]
        origins.update(letter.origin for letter in some)
        rows = [_known_row(one) for one in some]
        engine.base.executemany("INSERT INTO known VALUES (?, ?, ?, ?)", rows)
    return origins


def groups(engine: DuckEngine, where: str) -> list[dict[str, Any]]:
    """Letters by queue, task and reason, most first; StreamError for a bad condition."""
    return _asked(engine, GROUPS, where)


def chosen(engine: DuckEngine, where: str) -> list[dict[str, Any]]:
    """The letters that match the condition, oldest first, with the names of their queues."""
    names = {
        row["shown"]: to_text(bytes(row["name"])) for row in engine.rows("SELECT * FROM names")
    }
    found = _asked(engine, CHOSEN, where)
    for letter in found:
        for column in ("queue", "from_queue"):
            letter[column] = names.get(letter[column], letter[column])
    return found


def _keep_names(engine: DuckEngine, names: list[str]) -> None:
    """[H2] Which queues the names are that are shown otherwise, as those of the events (H2.5)."""
    known = {*names, *(name.removesuffix(DEAD_SUFFIX) for name in names)}
    for name in sorted(known):
        shown = writable(name)
        if shown == name:
            continue
        if shown in known:
            raise StreamError(TWO_NAMES % shown)
        engine.base.execute("INSERT INTO names VALUES (?, ?)", [shown, to_bytes(name)])


def target_of(letter: dict[str, Any], to: str) -> str:
    """A letter's target: as requested, else its job's queue, else the name without `.dead`; empty
    if none is known.
    """
    queue: str = letter["queue"]
    name = queue.removesuffix(DEAD_SUFFIX)
    return to or letter["from_queue"] or (name if name != queue else "")


def replay(
    client: Client, letters: list[dict[str, Any]], to: str, round_: int, keep: bool
) -> Replayed:
    """Add the bodies again and remove the letters; dead tasks of tubes are replayed there.

    Each is added under a key made of its id and the round, so that letters added by an interrupted
    replay are not added twice.
    """
    added, refused = _replay_tasks(client, [one for one in letters if one["is_task"]], to)
    lost = [one["letter"] for one in letters if not target_of(one, to)]
    refused += [f"{id}: {UNKNOWN}" for id in lost]
    queued = [one for one in letters if not one["is_task"] and target_of(one, to)]
    for at in range(0, len(queued), STEP):
        part = queued[at : at + STEP]
        pipe = client.pipeline()
        for letter in part:
            pipe.show(letter["letter"])
        shown = pipe.execute()
        alive = [
            (letter, info) for letter, info in zip(part, shown, strict=True) if _is_queued(info)
        ]
        for letter, info in alive:
            key = f"{letter['letter']}/{round_}"
            queue = target_of(letter, to)
            pipe.addjob(queue, info.body, dedupe=key, dedupe_ttl=KNOWN_S)
        results = pipe.execute(raise_on_error=False) if alive else []
        done = []
        for (letter, _), result in zip(alive, results, strict=True):
            if isinstance(result, Error):
                refused.append(f"{letter['letter']}: {result}")
            else:
                done.append(letter["letter"])
        if done and not keep:
            client.ackjob(*done)
        added += len(done)
    return Replayed(len(letters), added, refused)


def _replay_tasks(client: Client, letters: list[dict[str, Any]], to: str) -> tuple[int, list[str]]:
    """Dead tasks go back to work under their ids, at the leaders of their tubes (SPEC T48.13)."""
    added, refused = 0, []
    for tube in sorted({one["queue"] for one in letters}):
        ids = [one["letter"] for one in letters if one["queue"] == tube]
        for at in range(0, len(ids), STEP):
            part = ids[at : at + STEP]
            try:
                done = client.dead_replay(tube, ids=part, to=None if to in ("", tube) else to)
            except Error as e:
                refused += [f"{id}: {e}" for id in part]
                continue
            added += done
            if done < len(part):
                still = {letter.id for letter in client.dead_letters(tube, count=PAGE)}
                refused += [f"{id}: {STAYS}" for id in part if id in still]
    return added, refused


def _is_queued(info: JobInfo | None) -> bool:
    """Whether the letter is still queued: no other client took or removed it meanwhile."""
    return info is not None and info.state == "queued" and info.body is not None


def _asked(engine: DuckEngine, query: str, where: str) -> list[dict[str, Any]]:
    try:
        return engine.rows(query.format(where=f"({where})" if where else "true"))
    except engine.failure as e:
        raise StreamError(f"--where {where!r}: {str(e).splitlines()[0]}") from e


def _pages(found: Iterator[JobInfo]) -> Iterator[list[tuple[Any, ...]]]:
    page: list[tuple[Any, ...]] = []
    for info in found:
        page.append(_row(info))
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


def _row(info: JobInfo) -> tuple[Any, ...]:
    body = info.body or b""
    died_at = _instant(info.ctime_ns / 1e9)
    return info.id, writable(info.queue or ""), *_call_of(body), len(body), died_at, None, False


def _known_row(letter: DeadLetter) -> tuple[Any, ...]:
    """What the node says of a letter that kept its id; one that expired may never have failed."""
    died_at = _instant(letter.last_failure_ms / 1e3) if letter.last_failure_ms else None
    why = writable(letter.reason or letter.cause) or None
    return letter.id, writable(letter.origin) or None, died_at, why


def _task_rows(client: Client, tube: str, listed: list[DeadLetter]) -> list[tuple[Any, ...]]:
    """Dead tasks with what their bodies say, where the node or the leader shows them."""
    pipe = client.pipeline()
    for letter in listed:
        pipe.dead_show(letter.id)
    rows = []
    for letter, shown in zip(listed, pipe.execute(raise_on_error=False), strict=True):
        if isinstance(shown, NoJob):  # the node has no copy; the list tells the rest
            call, size = (writable(letter.task) or NO_TASK, ""), 0
        elif isinstance(shown, Error):
            raise shown
        else:
            call, size = _call_of(shown.body), len(shown.body)
        died_at = _instant(letter.last_failure_ms / 1e3)
        name, reason = writable(tube), writable(letter.reason)
        rows.append((letter.id, name, *call, size, died_at, reason, True))
    return rows


def _instant(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)


def _call_of(body: bytes) -> tuple[str, str]:
    """The task that a body calls, and its arguments."""
    try:
        call = decode(body)
        return writable(call.task), repr((call.args, call.kwargs))[:500]
    except BadBody:
        return NO_TASK, repr(body[:500])


def segments(directory: Path | None, scratch: Path) -> pipeline.Segments | None:
    """The events of that directory, if given."""
    return None if directory is None else pipeline.find_segments(directory, scratch)
