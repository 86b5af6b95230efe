"""`tuque dead`, `schedule`, `cancel` and `result`: dead letters, schedules, and single jobs.

Decides what a line shows; the node does the work.
"""

from __future__ import annotations

import datetime as dt
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import click
import msgspec

from tuque.client.commands.dead import DeadCount, DeadLetter
from tuque.client.commands.schedules import Schedule
from tuque.client.commands.work import Attempt, Result
from tuque.client.sync import Client
from tuque.clusterview.view import NodesInReach, asked
from tuque.completion import queue_names
from tuque.errors import Error, NoTube, ReplyError
from tuque.lazygroup import FiniteRange, LocalTime
from tuque.nodeoptions import NodeOptions, ended, node_options
from tuque.terminal import echo_each, json_line, printable
from tuque.worker import App

T = TypeVar("T")
HELP: Final = {"help_option_names": ["--help"]}
BAR: Final = 24
OF_BODY: Final = ("queue", "added_ms", "headers", "body")
EVERY_MAX_S: Final = 366 * 86_400.0  # between two jobs of a schedule, as the server has it


@contextmanager
def client_of(node: NodeOptions, is_here: bool = True) -> Iterator[Client]:
    """A client of the node in the options; ClickException for what it refuses.

    With `is_here` false it goes to the leaders of tubes.
    """
    node.settings()
    try:
        with Client(node.full_url(), discover=not is_here) as client:
            yield client
    except Error as err:
        raise ended(err) from None


def asked_letters(
    node: NodeOptions, is_here: bool, question: Callable[[NodesInReach], Awaitable[T]]
) -> T:
    """As `asked`, and names the nodes whose letters are left out."""

    async def answered(nodes: NodesInReach) -> T:
        nodes.warn("letters")
        return await question(nodes)

    return asked(node, answered, is_here, answer_s=None)


def one_node(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option to ask one node of the cluster."""
    return click.option("--here", is_flag=True, help="Only the letters of the node asked.")(command)


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that select dead letters."""
    for option in (
        click.option(
            "--since", type=LocalTime(), help="Only those that died since this local time."
        ),
        click.option("--task", help="Only of tasks that match the glob."),
        click.option("--cause", help="Only with this cause: failed, crashed, expired, ..."),
        click.option("--reason", help="Only with a reason that matches the glob."),
    ):
        command = option(command)
    return command


def chosen(
    reason: str | None, cause: str | None, task: str | None, since: int | None
) -> dict[str, Any]:
    """The filters as arguments of the client."""
    return {"reason": reason, "cause": cause, "task": task, "since_ms": since}


def fields(value: msgspec.Struct) -> dict[str, Any]:
    """A value for JSON: bytes as text, or as base64 if they are none."""
    found = {name: getattr(value, name) for name in value.__struct_fields__}
    return {name: plain(one) if isinstance(one, bytes) else one for name, one in found.items()}


def plain(data: bytes) -> Any:
    """Bytes for JSON."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": msgspec.to_builtins(data)}


def lines_of(value: msgspec.Struct) -> str:
    """A value, one field a line."""
    rows = []
    for name, one in fields(value).items():
        if name.endswith("_ms") and one:
            name, one = name.removesuffix("_ms"), at(one)
        if one not in ("", None, {}, 0, ()):
            rows.append(f"{name.replace('_', ' ')}: {printable(str(one))}")
    return "\n".join(rows)


def at(ms: int) -> str:
    """An instant in local time."""
    return dt.datetime.fromtimestamp(ms / 1000).astimezone().isoformat(" ", "seconds")


def row(one: DeadLetter) -> str:
    """A dead letter on one line."""
    words = [
        at(one.last_failure_ms),
        one.id,
        one.origin,
        one.task or "-",
        f"{one.attempts} attempts",
        one.cause,
        one.reason,
    ]
    return printable("  ".join(words))


@click.group(context_settings=HELP)
def dead() -> None:
    """Dead letters: jobs that were given up, in queues such as mail.dead.

    They keep id, body, reason and the queue that they came from. All nodes of the cluster are
    asked; --here asks one.
    """


@dead.command("list", context_settings=HELP)
@node_options
@one_node
@filters
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.argument("queue", shell_complete=queue_names)
def list_(node: NodeOptions, here: bool, as_json: bool, queue: str, **selected: Any) -> None:
    """List the dead letters in QUEUE, the oldest first, one a line."""
    wanted = chosen(**selected)

    async def shown(nodes: NodesInReach) -> None:
        count = 0
        async for one in nodes.letters().each(queue, **wanted):
            click.echo(json_line(fields(one)) if as_json else row(one))
            count += 1
        if count == 0:
            click.echo(printable(await none(nodes)), err=True)

    async def none(nodes: NodesInReach) -> str:
        if any(wanted.values()):
            return f"no dead letters in {queue} are as the options say"
        if not await nodes.letters().has_jobs(queue):
            return f"no dead letters in {queue}"
        # DEADLETTER moved them there, as workers do with tasks of tubes, or a producer.
        return f"no dead letters in {queue}, but other jobs: tuque cli QPEEK {queue} 10"

    asked_letters(node, here, shown)


@dead.command(context_settings=HELP)
@node_options
@one_node
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("id")
def show(node: NodeOptions, here: bool, as_json: bool, id: str) -> None:
    """Show all of one dead letter."""
    found = asked_letters(node, here, lambda nodes: nodes.letters().show(id))
    click.echo(json_line(fields(found)) if as_json else lines_of(found))


@dead.command(context_settings=HELP)
@node_options
@one_node
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.argument("queue", shell_complete=queue_names)
def stat(node: NodeOptions, here: bool, as_json: bool, queue: str) -> None:
    """Count the dead letters in QUEUE by cause and reason."""
    echo_each(
        asked_letters(node, here, lambda nodes: nodes.letters().counts(queue)),
        lambda one: json_line(fields(one)) if as_json else count_row(one),
        f"no dead letters in {queue}",
    )


def count_row(one: DeadCount) -> str:
    """How many have a cause and a reason."""
    return printable(f"{one.count:>8,}  {one.cause}  {one.reason}")


@dead.command(context_settings=HELP)
@node_options
@one_node
@filters
@click.option(
    "--to",
    metavar="QUEUE",
    shell_complete=queue_names,
    help="Into this queue, not those they came from.",
)
@click.option("--rate", type=click.IntRange(1, 1_000_000), help="At most that many a second.")
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("queue", shell_complete=queue_names)
@click.argument("ids", nargs=-1)
def replay(
    node: NodeOptions,
    here: bool,
    to: str | None,
    rate: int | None,
    is_all: bool,
    as_json: bool,
    queue: str,
    ids: tuple[str, ...],
    **selected: Any,
) -> None:
    """Put dead letters from QUEUE back to work: those with IDS, that the options mean, or --all.

    They keep their ids, and begin with their first attempt.
    """
    check_selected(is_all, ids, selected)

    async def replayed(nodes: NodesInReach) -> tuple[Bar, int]:
        letters = nodes.letters()
        bar = Bar(len(ids) or await letters.length(queue))
        done = await letters.replay(queue, ids, to, bar.show, rate, **chosen(**selected))
        bar.end()
        return bar, done

    bar, done = asked_letters(node, here, replayed)
    click.echo(json_line({"replayed": done}) if as_json else f"{done:,} replayed")
    if bar.left > 0 and (is_all or ids):
        hint = "if their queue is a tube now, name another one with --to"
        click.echo(f"{bar.left:,} stay dead: {hint}", err=True)


@dead.command(context_settings=HELP)
@node_options
@one_node
@filters
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("queue", shell_complete=queue_names)
@click.argument("ids", nargs=-1)
def purge(
    node: NodeOptions,
    here: bool,
    is_all: bool,
    as_json: bool,
    queue: str,
    ids: tuple[str, ...],
    **selected: Any,
) -> None:
    """Remove dead letters from QUEUE: those with IDS, that the options mean, or --all."""
    check_selected(is_all, ids, selected)

    async def purged(nodes: NodesInReach) -> int:
        letters = nodes.letters()
        bar = Bar(len(ids) or await letters.length(queue))
        done = await letters.purge(queue, ids, bar.show, **chosen(**selected))
        bar.end()
        return done

    done = asked_letters(node, here, purged)
    click.echo(json_line({"purged": done}) if as_json else f"{done:,} purged")


def check_selected(is_all: bool, ids: tuple[str, ...], selected: dict[str, Any]) -> None:
    """UsageError unless one way to select is used."""
    ways = [is_all, bool(ids), any(one is not None for one in selected.values())]
    if sum(ways) != 1:
        raise click.UsageError("say which: ids, or filters such as --reason, or --all")


class Bar:
    """How far a replay or purge is, on a terminal."""

    def __init__(self, count: int) -> None:
        self._count = max(1, count)
        self._is_live = sys.stderr.isatty()
        self.left = 0  # letters that were seen and not changed

    def show(self, done: int, seen: int) -> None:
        """So many letters were seen, and `done` of them changed."""
        self.left = seen - done
        if self._is_live:
            full = min(BAR, BAR * seen // self._count)
            line = f"[{'#' * full}{'-' * (BAR - full)}] {seen:,}/{self._count:,}, {done:,} done"
            click.echo(f"\r\033[K{line}", nl=False, err=True)

    def end(self) -> None:
        """Clears the line."""
        if self._is_live:
            click.echo("\r\033[K", nl=False, err=True)


@click.command(context_settings=HELP)
@node_options
@click.option("--reason", help="Why; shown to the worker and to those who wait for the result.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("ids", nargs=-1, required=True)
def cancel(node: NodeOptions, reason: str | None, as_json: bool, ids: tuple[str, ...]) -> None:
    """Cancel jobs and groups: a job that waits ends, one at work is flagged and its worker told.

    Of a group all open children end. Prints for each what became of it: ended, flagged, over (it
    had ended before), unknown, or NOREACH (a node that may have it did not answer). Exit status 1
    if one is not known.
    """
    found: list[str] = []
    with client_of(node) as client, suppress(ReplyError):
        found = [str(one or "unknown") for one in client.cancel(*ids, reason=reason)]
    if not found:  # CANCEL refuses all if one is a group
        with client_of(node, is_here=False) as client:
            found = [cancelled(client, id, reason, is_alone=len(ids) == 1) for id in ids]
    if as_json:
        click.echo(json_line(dict(zip(ids, found, strict=True))))
    else:
        for id, became in zip(ids, found, strict=True):
            click.echo(printable(f"{id} {became}"))
    sys.exit(0 if {"ended", "flagged", "over"}.issuperset(found) else 1)


def cancelled(client: Client, id: str, reason: str | None, *, is_alone: bool) -> str:
    """What became of a job or group; why not, unless it is alone: then that is raised."""
    try:
        (became,) = client.cancel(id, reason=reason)
    except ReplyError:
        try:
            return App(client).handle(id).cancel(reason or "")
        except ReplyError as err:
            if is_alone:
                raise
            return str(err)
    return str(became or "unknown")


@click.command(context_settings=HELP)
@node_options
@click.option(
    "--wait", "wait_s", type=FiniteRange(over=True), help="Wait up to that many seconds for it."
)
@click.option("--body", "with_body", is_flag=True, help="Its queue, headers and body as well.")
@click.option("--attempts", "with_attempts", is_flag=True, help="Its last 16 attempts as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("id")
def result(node: NodeOptions, wait_s: float | None, as_json: bool, id: str, **more: Any) -> None:
    """Show where a job or group stands: its state, progress, result, or last failure.

    Exit status 1 unless the job is done: also at the end of the wait, and if the job is not known
    or its node is away. A job that has ended has a body if it was added with KEEP and BODY.
    """
    with client_of(node) as client:
        found = client.result(id, **more)
        if wait_s is not None and found.state != "scheduled" and not found.is_over:
            found = client.result(id, wait_ms=max(1, round(wait_s * 1000)), **more)
    if found.state == "scheduled":  # it may be a group, whose end RESULT does not tell
        with client_of(node, is_here=False) as client:
            found = App(client).handle(id).outcome(wait_s or 0)
    if as_json:
        click.echo(json_line(shown(found, **more)))
    else:
        click.echo(lines_of(msgspec.structs.replace(found, attempts=())))
        for one in found.attempts:
            click.echo(tried(one))
    sys.exit(0 if found.state == "done" else 1)


def shown(found: Result, with_body: bool, with_attempts: bool) -> dict[str, Any]:
    """A result for JSON, without what was not asked for."""
    left_out = [] if with_body else [*OF_BODY]
    if not with_attempts:
        left_out.append("attempts")
    values = {**fields(found), "attempts": [fields(one) for one in found.attempts]}
    return {name: values[name] for name in values if name not in left_out}


def tried(one: Attempt) -> str:
    """An attempt on one line, and its traceback below."""
    words = [f"attempt {one.attempt}", one.state, one.worker or "-"]
    words.append(at(one.began_ms) if one.began_ms else "-")
    if one.began_ms and one.ended_ms:
        words.append(f"{(one.ended_ms - one.began_ms) / 1000:.3f} s")
    line = printable("  ".join([*words, *([one.reason] if one.reason else [])]))
    lines = one.detail.decode(errors="backslashreplace").splitlines()
    return "\n".join([line, *(f"  {printable(text)}" for text in lines)])


@click.group(context_settings=HELP)
def schedule() -> None:
    """Schedules: jobs that a queue gets at times of day, or at intervals.

    The queue is a tube of type tasks, whose leader makes the jobs.
    """


@schedule.command("list", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.argument("queue", required=False, shell_complete=queue_names)
def list_schedules(node: NodeOptions, as_json: bool, queue: str | None) -> None:
    """List the schedules of QUEUE, else of all queues, one a line."""
    with client_of(node, is_here=False) as client:
        names = [queue] if queue is not None else timed_queues(client)
        none = "no schedules" if queue is None else f"no schedules in {queue}"
        rows = (one for name in names for one in schedules_of(client, name))
        echo_each(rows, lambda one: json_line(fields(one)) if as_json else planned(one), none)


def schedules_of(client: Client, name: str) -> Iterator[Schedule]:
    """Those of one queue; ClickException if it can have none."""
    try:
        yield from client.schedules(name)
    except NoTube:
        raise click.ClickException(
            f"'{printable(name)}' is no tube of type tasks: only those have schedules"
        ) from None


def timed_queues(client: Client) -> list[str]:
    """The tubes that may have schedules."""
    return sorted(client.qscan(type="tasks"))


def planned(one: Schedule) -> str:
    """A schedule on one line: when it fires next, and when it did."""
    when = f"{one.cron} ({one.tz})" if one.cron else f"every {one.every_s:g} s"
    ahead = "paused" if one.paused else f"next {at(one.next_ms)}" if one.next_ms else "waits"
    behind = f"last {at(one.last_ms)}" if one.last_ms else "none yet"
    words = [one.queue, one.name, when, ahead, behind, f"{one.fired} jobs"]
    if one.late:
        words.append(f"late {one.late} times")
    return printable("  ".join(words))


@schedule.command("show", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("queue", shell_complete=queue_names)
@click.argument("name")
def show_schedule(node: NodeOptions, as_json: bool, queue: str, name: str) -> None:
    """Show all of one schedule."""
    with client_of(node, is_here=False) as client:
        found = client.schedule_show(queue, name)
    click.echo(json_line(fields(found)) if as_json else lines_of(found))


@schedule.command("add", context_settings=HELP)
@node_options
@click.option("--cron", metavar="TEXT", help="Minute, hour, day, month and day of the week.")
@click.option("--tz", metavar="ZONE", help="Its time zone, as Europe/Berlin.  [default: UTC]")
@click.option(
    "--every", "every_s", type=FiniteRange(1, EVERY_MAX_S), help="Seconds between two jobs."
)
@click.option(
    "--missed",
    type=click.Choice(["skip", "one", "all"]),
    help="What becomes of instants that were missed.  [default: one]",
)
@click.argument("queue", shell_complete=queue_names)
@click.argument("name")
@click.argument("body")
def add_schedule(node: NodeOptions, queue: str, name: str, body: str, **words: Any) -> None:
    """Add the schedule NAME to QUEUE, whose jobs have BODY, or change what it says."""
    with client_of(node, is_here=False) as client:
        try:
            click.echo(client.schedule_add(queue, name, body, **words))
        except NoTube:
            raise click.ClickException(
                f"'{printable(queue)}' is no tube of type tasks: make it with "
                f"`tuque cli TUBE CREATE {shlex.quote(printable(queue))} tasks TTR 30`"
            ) from None


def of_one(word: str, text: str) -> None:
    """A subcommand that does something with one schedule."""

    @schedule.command(word, context_settings=HELP, help=text)
    @node_options
    @click.argument("queue", shell_complete=queue_names)
    @click.argument("name")
    def command(node: NodeOptions, queue: str, name: str) -> None:
        with client_of(node, is_here=False) as client:
            done = getattr(client, f"schedule_{word}")(queue, name)
        click.echo(outcome_of(word, done))
        if word in ("run", "drop") and not done:
            sys.exit(1)


def outcome_of(word: str, done: str | bool | None) -> str:
    """The outcome, for people; of `run` the id of the job."""
    if word == "run":
        return str(done or "not added: a job has its unique key")
    if word == "drop":
        return "dropped" if done else "there is no such schedule"
    state = {"pause": "paused", "resume": "continues"}[word]
    return state if done else "nothing to change"


of_one("pause", "Make no more jobs until `resume`.")
of_one("resume", "Go on, without the times of the pause.")
of_one("run", "Add a job now, beside the times; prints its id.")
of_one("drop", "Remove the schedule; the jobs that it made stay.")
