"""The command `tuque worker`: options, log, signals and exit codes; the work is in
worker/run/worker.py."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import random
import re
import signal
import sys
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path
from typing import Any, Final

import click

from tuque import aio
from tuque.client.retry import Retry
from tuque.errors import ConfigError, Error
from tuque.lazygroup import FiniteRange
from tuque.logtext import facts, visible_lines
from tuque.nodeoptions import HOST, PORT, NodeOptions
from tuque.worker.app import app as worker_app
from tuque.worker.app.app import App, load_app
from tuque.worker.app.encryption import Keys
from tuque.worker.pools.child import SIGNALS, reopen_logs, set_up_log
from tuque.worker.pools.pools import Pool, ThreadPool
from tuque.worker.pools.process_pool import ProcessPool
from tuque.worker.pools.processes import (
    FORKS,
    flush_output,
    handlers,
    signals_blocked,
    unblock_signals,
)
from tuque.worker.pools.systems import end_with
from tuque.worker.run import health
from tuque.worker.run.crash_table import LEAVING, RETIRED, CrashTable
from tuque.worker.run.jobs import WorkerSettings
from tuque.worker.run.registration import send_plans
from tuque.worker.run.reload import Reloader
from tuque.worker.run.supervise import Supervisor
from tuque.worker.run.worker import Worker

LOADERS: Final = (__file__, worker_app.__file__, importlib.__file__, "<frozen importlib")
log: Final = logging.getLogger("tuque.worker")

SPARE_PLACES: Final = 200  # for done jobs that the broker does not know of yet
POOLS: Final = ("thread", "process", "async")
LOGS: Final = ("text", "json")
URL_OPTION: Final = "TUQUE_WORKER_URL"  # the variable of --url (U4.7)
WEIGHED: Final = re.compile(r"(.+)=(\d+)")  # of -Q
WEIGHT_MAX: Final = 1_000
SOME_FAILED: Final = 3  # exit code of --burst

EPILOG: Final = """\b
TERM, INT  stop fetching, finish inside --grace, give the rest back;
           a second one gives back at once what runs
TSTP       stop fetching, stay; HUP  open log files anew
USR1       log what runs, write the stacks to stderr
"""


def check_health(context: click.Context, option: click.Parameter, path: str | None) -> None:
    """`--check PATH`: one line, and exit code 0 or 1; loads no app."""
    if path is None or context.resilient_parsing:
        return
    is_alive, text = health.check(path)
    click.echo(text, err=not is_alive)
    context.exit(0 if is_alive else 1)


def end_with_parent(context: click.Context, option: click.Parameter, parent: str | None) -> None:
    """`--parent PID:PIPE`: the worker ends with that process, however that ended (U4.9)."""
    if parent is not None and not context.resilient_parsing:
        end_with(*map(int, parent.split(":")))


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "-Q",
    "--queues",
    metavar="NAMES",
    help="Queues by priority, or with weights, high=4,low=1.  [default: those of the tasks]",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=8,
    show_default=True,
    help="Jobs that run at a time.",
)
@click.option(
    "--pool",
    type=click.Choice(POOLS),
    default="thread",
    show_default=True,
    help="Where they run. Only process ends whatever is over its limit.",
)
@click.option(
    "--prefetch",
    type=click.IntRange(0, 10_000),
    help="Jobs fetched ahead, 0 for none.  [default: what begins in 0.1 s, up to -c]",
)
@click.option(
    "--grace",
    type=FiniteRange(most=86_400),
    default=25.0,
    show_default=True,
    help="Seconds to finish in after TERM.",
)
@click.option(
    "--time-limit",
    type=FiniteRange(over=True),
    help="Seconds a job may run, for tasks without a limit of their own.",
)
@click.option("--burst", is_flag=True, help="End when the queues are empty; 3 if jobs failed.")
@click.option(
    "--max-memory",
    type=click.IntRange(1),
    metavar="MB",
    help="Replace a process that has more, after its job.",
)
@click.option("--reload", is_flag=True, help="Start anew when a file in --app-dir changes.")
@click.option(
    "--health-file", metavar="PATH", help="Write there that the worker is alive, for --check."
)
@click.option(
    "--check",
    metavar="PATH",
    is_eager=True,
    expose_value=False,
    callback=check_health,
    help="Check such a file: exit 0 or 1.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Serve /metrics and /healthz there, on loopback.",
)
@click.option("--keys", metavar="FILE", help="Keys of bodies; else the app's own.")
@click.option("--app-version", default="", help="What is deployed; else the app's own.")
@click.option("--max-jobs", type=click.IntRange(1), help="Stop after so many jobs.")
@click.option(
    "--app-dir",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Where to look for the module first.",
)
@click.option(
    "-u",
    "--url",
    envvar=URL_OPTION,
    help=f"The broker; {URL_OPTION} keeps a password off the command line.  [default: the app's, "
    "else TUQUE_URL]",
)
@click.option("--host", help="Or its host and port, as with other commands.")
@click.option("-p", "--port", type=click.IntRange(1, 65535))
@click.option("-v", "--verbose", is_flag=True, help="Log each job that is done.")
@click.option("--box", hidden=True)
@click.option("--parent", hidden=True, is_eager=True, expose_value=False, callback=end_with_parent)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log.",
)
@click.option(
    "--log",
    "log_kind",
    type=click.Choice(LOGS),
    default="text",
    show_default=True,
    help="Lines for people, or JSON.",
)
def worker(
    target: str,
    queues: str | None,
    concurrency: int,
    pool: str,
    prefetch: int | None,
    grace: float,
    time_limit: float | None,
    burst: bool,
    max_memory: int | None,
    reload: bool,
    health_file: str | None,
    metrics_port: int | None,
    keys: str | None,
    app_version: str,
    max_jobs: int | None,
    app_dir: str,
    url: str | None,
    host: str | None,
    port: int | None,
    verbose: bool,
    box: str | None,
    log_level: str,
    log_kind: str,
) -> None:
    """Run the tasks of an app until a signal ends it.

    MODULE:APP names a tuque.worker.App, `shop.tasks:app`.
    """
    set_up_log(log_kind, log_level.upper(), verbose)
    if reload:
        sys.exit(reloader(app_dir, grace).run())
    settings = WorkerSettings(
        queues=(),
        concurrency=concurrency,
        prefetch=prefetch,
        grace_s=grace,
        max_jobs=max_jobs,
        time_limit_s=time_limit,
        is_burst=burst,
        max_memory_mb=max_memory,
        health_file=health_file,
        metrics_port=metrics_port,
        app_version=app_version,
    )
    if pool != "process" and box is None:  # whose children end one by one
        sys.exit(supervised(concurrency + settings.most_ahead + SPARE_PLACES))
    children = Children(target, str(Path(app_dir).resolve()), None, max_memory, log_kind, keys)
    ended = run_here(children, pool, (url, host, port), queues, settings, box)
    _leave(ended.is_clean, SOME_FAILED if burst and ended.has_failed else 0)


@signals_blocked()
def run_here(
    children: Children,
    pool: str,
    broker: tuple[str | None, str | None, int | None],
    queues: str | None,
    settings: WorkerSettings,
    box: str | None,
) -> Ended:
    """Runs a worker in this process; `broker` is its URL, or host and port, as in the options."""
    table = None if box is None else CrashTable.opened(box)
    ended: Ended | None = None
    try:
        app = loaded(children.target, children.app_dir)
        use_broker(app, *broker)
        if children.keys:
            app.keys = Keys.read(children.keys)
        version = settings.app_version or app.version
        names, weights = _queue_names(queues, app)
        settings = replace(settings, queues=names, weights=weights, app_version=version)
        warn_of_strange(settings.queues, app)
        warn_of_batches(app, 1 if pool == "process" else settings.concurrency)
        children = replace(children, url=app.url)
        if table is not None:
            table.url = app.url or ""
        chosen = make_pool(pool, app, children, settings.concurrency)
        apart = None if table is None else children.pool(1)
        ended = _run(work(app, chosen, settings, table, apart))
        return ended
    except Error as err:
        raise click.ClickException(visible_lines(str(err))) from None
    finally:
        if table is not None:
            table.phase = RETIRED if ended is not None and ended.is_retired else LEAVING


def supervised(places: int) -> int:
    """Workers in processes of their own, one after the other; the exit code of the last one."""
    return Supervisor(arguments(), environment(), places).run()


def reloader(app_dir: str, grace_s: float) -> Reloader:
    """Workers with the same options but `--reload`; ClickException without watchfiles."""
    try:
        words = [word for word in arguments() if word != "--reload"]
        return Reloader(words, environment(), app_dir, grace_s)
    except ConfigError as err:
        raise click.ClickException(str(err)) from None


def use_broker(app: App, url: str | None, host: str | None, port: int | None) -> None:
    """Have the app talk to the broker that the options name, if they name one."""
    if url is not None:
        app.use(url)
    elif host is not None or port is not None:
        app.use(NodeOptions(host or HOST, port or PORT, "", "", "").full_url())


def environment() -> dict[str, str]:
    """The environment of that process, with the URL."""
    url = click.get_current_context().params.get("url")
    return {**os.environ, URL_OPTION: url} if url else dict(os.environ)


def arguments() -> list[str]:
    """The command line of this command, for another process of it, without the URL.

    Other users of the machine can read command lines.
    """
    context = click.get_current_context()
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if value is None or value is False:
            continue
        if option.name == "url":
            continue
        if isinstance(option, click.Option):
            words.append(option.opts[-1] if value is True else f"{option.opts[-1]}={value}")
        else:
            words.append(str(value))
    return words


def loaded(target: str, app_dir: str) -> App:
    """The app; ClickException for an error in its module, without this program's stack frames."""
    try:
        return load_app(target, app_dir)
    except Error:
        raise
    except Exception as err:  # user code may raise anything
        found = traceback.TracebackException.from_exception(err)
        theirs = dropwhile(lambda frame: frame.filename.startswith(LOADERS), found.stack)
        found.stack = traceback.StackSummary.from_list(list(theirs))
        what = visible_lines("".join(found.format()).rstrip())
        raise click.ClickException(f"{target} cannot be loaded:\n{what}") from None


@dataclass(frozen=True)
class Children:
    """How child processes are made."""

    target: str
    app_dir: str
    url: str | None
    max_memory_mb: int | None
    log_kind: str
    keys: str | None  # a file

    def pool(self, concurrency: int) -> ProcessPool:
        """A pool of them."""
        return ProcessPool(
            self.target,
            self.app_dir,
            self.url,
            concurrency,
            self.max_memory_mb,
            self.log_kind,
            self.keys,
        )


@dataclass(frozen=True)
class Ended:
    """How a worker ended: `is_clean` without threads left behind, `has_failed` with failed jobs."""

    is_clean: bool
    is_retired: bool
    has_failed: bool


def make_pool(kind: str, app: App, children: Children, concurrency: int) -> Pool:
    """The pool of that name."""
    if kind == "process":
        return children.pool(concurrency)
    return ThreadPool(app.tasks, concurrency, app.aclose, app)


async def work(
    app: App,
    pool: Pool,
    settings: WorkerSettings,
    table: CrashTable | None = None,
    apart: ProcessPool | None = None,
) -> Ended:
    """Runs a worker on this loop, with its signals.

    `table` and `apart` are for tasks that end the process; see Worker.
    """
    if app.url is None:
        raise ConfigError("this app was built around a client; name the broker with --url")
    # One attempt per call: the worker itself decides how to handle an outage, and logs it.
    workers: list[Worker] = []

    def cancel(job_id: str, run: str) -> None:
        for one in workers:
            one.cancel(job_id, run)

    def ordered(name: str, order: str) -> None:
        for one in workers:
            one.ordered(name, order)

    async with aio.Client(
        app.url, retry=Retry(attempts=0), name="worker", on_cancel=cancel, on_order=ordered
    ) as client:
        running = Worker(app.tasks, client, pool, settings, table, apart, app)
        workers.append(running)
        take_signals(running, pool)
        plans = asyncio.create_task(send_plans_once(app, client, table))  # U9.1
        try:
            is_clean = await running.run()
            return Ended(is_clean, running.is_retired, bool(running.story.unwell))
        finally:
            plans.cancel()
            await asyncio.gather(plans, return_exceptions=True)
            app.close()
            if settings.health_file is not None and not running.is_retired:
                health.drop(settings.health_file)


def hang_up(pool: Pool) -> None:
    """[U4] Opens log files of the app anew, also in child processes (U4.10)."""
    reopen_logs()
    log.info("log files are opened anew", extra=facts("logs_reopened"))
    if isinstance(pool, ProcessPool):
        for pid in pool.pids:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGHUP)


def take_signals(running: Worker, pool: Pool) -> None:
    """The signals of this process are the worker's: they come to this loop."""
    before = handlers(SIGNALS)
    if before[signal.SIGINT] is signal.SIG_DFL:  # U4.11; what the app knows is Python's
        before[signal.SIGINT] = signal.default_int_handler
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, running.stop)
    loop.add_signal_handler(signal.SIGINT, running.stop)
    loop.add_signal_handler(signal.SIGTSTP, running.quiet)
    loop.add_signal_handler(signal.SIGUSR1, running.dump)
    loop.add_signal_handler(signal.SIGHUP, hang_up, pool)
    FORKS.keeps(before)
    unblock_signals()


async def send_plans_once(app: App, client: aio.Client, table: CrashTable | None) -> None:
    """[U9] Of the processes that have the table, one worker, one sends the schedules (U9.1)."""
    if table is not None and table.has_sent_plans:
        return
    await send_plans(app, client, random.Random())
    if table is not None:
        table.has_sent_plans = True


def _queue_names(given: str | None, app: App) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The queues to serve, each once, and their weights, if they have any."""
    if not app.tasks and app.serves is None:
        raise ConfigError("the app has no tasks: is the module that defines them imported?")
    names = app.queues if given is None else given.split(",")
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not found:
        raise ConfigError("-Q names no queue")
    parts = [WEIGHED.fullmatch(name) for name in found] if given is not None else [None]
    weighed = [(one[1], int(one[2])) for one in parts if one is not None]
    if not weighed:
        return found, ()
    if len(weighed) < len(parts):
        raise ConfigError("-Q: give each queue a weight, as high=4,low=1, or none")
    if not all(1 <= weight <= WEIGHT_MAX for _, weight in weighed):
        raise ConfigError(f"-Q: a weight is from 1 to {WEIGHT_MAX}")
    if len(dict(weighed)) < len(weighed):
        raise ConfigError("-Q: a queue has one weight")
    return tuple(dict(weighed)), tuple(dict(weighed).values())


def warn_of_batches(app: App, places: int) -> None:
    """[U15] Names the tasks whose batches are never full (U15.1)."""
    for task in app.tasks.values():
        if task.batches is not None and task.batches.most > places:
            log.warning(
                "task %(task)s takes %(batch)d jobs at once, and a process runs %(places)d here: "
                "its batches have no more; use --pool thread or async, and a larger -c",
                facts("batch_never_full", task=task.name, batch=task.batches.most, places=places),
            )


def warn_of_strange(queues: tuple[str, ...], app: App) -> None:
    """[U4] Names the queues to which no task of the app adds by itself (U4.13)."""
    for queue in queues:
        if queue not in app.queues:
            log.warning(
                "no task of the app has the queue %(queue)s, which -Q names; it is served, for "
                "jobs that others send there",
                facts("queue_without_task", queue=queue),
            )


def _run(main: Coroutine[Any, Any, Ended]) -> Ended:
    """Runs the coroutine on uvloop if installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def _leave(is_clean: bool, code: int) -> None:
    """Ends the process, without waiting for threads whose jobs were requeued."""
    flush_output()
    if is_clean:
        sys.exit(code)
    logging.shutdown()
    os._exit(code)
