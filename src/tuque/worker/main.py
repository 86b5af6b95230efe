"""The command `tuque worker`: options, log, signals and exit codes; the work is in run.py."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
import traceback
from itertools import dropwhile
from pathlib import Path
from typing import Any, Final

import click

from tuque import aio
from tuque.client.retry import Retry
from tuque.errors import ConfigError, Error
from tuque.lazygroup import FiniteRange
from tuque.logtext import VisibleFormatter, visible_lines
from tuque.nodeoptions import HOST, PORT, NodeOptions
from tuque.worker.pools.pools import AsyncPool, Pool, ThreadPool
from tuque.worker.pools.process_pool import ProcessPool
from tuque.worker.process.box import LEAVING, Box
from tuque.worker.process.supervise import Supervisor
from tuque.worker.run import Worker, WorkerSettings
from tuque.worker.tasks import app as worker_app
from tuque.worker.tasks.app import App, load_app

LOADERS: Final = (__file__, worker_app.__file__, importlib.__file__, "<frozen importlib")
log: Final = logging.getLogger("tuque.worker")

SPARE_PLACES: Final = 200  # for done jobs that the broker does not know of yet
POOLS: Final = ("thread", "process", "async")
LOG_FORMAT: Final = "%(asctime)s %(process)d %(levelname)s %(message)s"

EPILOG: Final = """\b
TERM, INT  stop fetching, finish inside --grace, give the rest back;
           a second one gives back at once what runs
TSTP       stop fetching, stay
USR1       log what runs, write the stacks to stderr
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "-Q",
    "--queues",
    metavar="NAMES",
    help="Queues by priority, with commas.  [default: those of the tasks]",
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
    help="Jobs fetched ahead, 0 for none.  [default: as -c]",
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
    help="Seconds a job may run, for tasks that do not say.",
)
@click.option("--max-jobs", type=click.IntRange(1), help="Stop after so many jobs.")
@click.option(
    "--app-dir",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Where to look for the module first.",
)
@click.option("-u", "--url", help="The broker.  [default: the app's, else TUQUE_URL]")
@click.option("--host", help="Or its host and port, as with other commands.")
@click.option("-p", "--port", type=click.IntRange(1, 65535))
@click.option("-v", "--verbose", is_flag=True, help="Log each job that is done.")
@click.option("--box", hidden=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log.",
)
def worker(
    target: str,
    queues: str | None,
    concurrency: int,
    pool: str,
    prefetch: int | None,
    grace: float,
    time_limit: float | None,
    max_jobs: int | None,
    app_dir: str,
    url: str | None,
    host: str | None,
    port: int | None,
    verbose: bool,
    box: str | None,
    log_level: str,
) -> None:
    """Run the tasks of an app until told to stop.

    MODULE:APP names a tuque.worker.App, `shop.tasks:app`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter(LOG_FORMAT))
    logging.basicConfig(handlers=[handler], level=log_level.upper())
    if verbose:
        log.setLevel(logging.DEBUG)
    ahead = concurrency if prefetch is None else prefetch
    if pool != "process" and box is None:  # whose children end one by one
        sys.exit(Supervisor(arguments(), concurrency + ahead + SPARE_PLACES).run())
    table = None if box is None else Box.opened(box)
    try:
        app = loaded(target, app_dir)
        use_broker(app, url, host, port)
        settings = WorkerSettings(
            queues=_queue_names(queues, app),
            concurrency=concurrency,
            prefetch=ahead,
            grace_s=grace,
            max_jobs=max_jobs,
            time_limit_s=time_limit,
        )
        chosen = make_pool(pool, app, target, app_dir, concurrency)
        apart = None if table is None else process_pool(app, target, app_dir, 1)
        is_clean = _run(work(app, chosen, settings, table, apart))
    except Error as err:
        raise click.ClickException(visible_lines(str(err))) from None
    finally:
        if table is not None:
            table.phase = LEAVING
    _leave(is_clean)


def use_broker(app: App, url: str | None, host: str | None, port: int | None) -> None:
    """Have the app talk to the broker that the options name, if they name one."""
    if url is not None:
        app.use(url)
    elif host is not None or port is not None:
        app.use(NodeOptions(host or HOST, port or PORT, "", "", "").full_url())


def arguments() -> list[str]:
    """The command line of this command, for another process of it."""
    context = click.get_current_context()
    words: list[str] = []
    for option in context.command.params:
        value = context.params[option.name or ""]
        if value is None or value is False:
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


def make_pool(kind: str, app: App, target: str, app_dir: str, concurrency: int) -> Pool:
    """The pool of that name."""
    if kind == "process":
        return process_pool(app, target, app_dir, concurrency)
    if kind == "async":
        return AsyncPool(app.tasks, concurrency, app.aclose)
    return ThreadPool(app.tasks, concurrency)


def process_pool(app: App, target: str, app_dir: str, concurrency: int) -> ProcessPool:
    """Child processes for the app."""
    return ProcessPool(target, str(Path(app_dir).resolve()), app.url, concurrency)


async def work(
    app: App,
    pool: Pool,
    settings: WorkerSettings,
    table: Box | None = None,
    apart: ProcessPool | None = None,
) -> bool:
    """Runs a worker on this loop, with its signals. False if threads are left behind.

    `table` and `apart` are for tasks that end the process; see Worker.
    """
    if app.url is None:
        raise ConfigError("this app was built around a client; name the broker with --url")
    # One attempt per call: the worker itself decides how to handle an outage, and logs it.
    workers: list[Worker] = []

    def cancel(job_id: str, run: str) -> None:
        for one in workers:
            one.cancel(job_id, run)

    async with aio.Client(
        app.url, retry=Retry(attempts=0), name="worker", on_cancel=cancel
    ) as client:
        running = Worker(app.tasks, client, pool, settings, table, apart, app)
        workers.append(running)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, running.stop)
        loop.add_signal_handler(signal.SIGINT, running.stop)
        loop.add_signal_handler(signal.SIGTSTP, running.quiet)
        loop.add_signal_handler(signal.SIGUSR1, running.dump)
        try:
            return await running.run()
        finally:
            app.close()


def _queue_names(given: str | None, app: App) -> tuple[str, ...]:
    """The queues to serve, each once."""
    if not app.tasks:
        raise ConfigError("the app has no tasks: is the module that defines them imported?")
    names = app.queues if given is None else given.split(",")
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not found:
        raise ConfigError("-Q names no queue")
    return found


def _run(main: Any) -> bool:
    """Runs the coroutine on uvloop if installed."""
    try:
        import uvloop
    except ModuleNotFoundError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return bool(runner.run(main))


def _leave(is_clean: bool) -> None:
    """Ends the process, without waiting for threads whose jobs were requeued."""
    if is_clean:
        return
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
