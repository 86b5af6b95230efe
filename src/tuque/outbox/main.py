"""`tuque outbox`: the relay of a database that SQLAlchemy knows, and whether it keeps up."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from tuque.errors import ConfigError
from tuque.lazygroup import FiniteRange
from tuque.logtext import VisibleFormatter
from tuque.outbox.relay import Relay
from tuque.outbox.rows import LostSlot, Tables
from tuque.worker.app.app import DEFAULT_URL

HELP: Final = {"help_option_names": ["-h", "--help"]}
MOST_S: Final = 60.0


@click.group(context_settings=HELP)
def outbox() -> None:
    """Jobs that were added in transactions of a database."""


@outbox.command("relay", context_settings=HELP)
@click.argument("target", metavar="MODULE:ENGINE")
@click.option("-u", "--url", envvar="TUQUE_URL", default=DEFAULT_URL, show_default=True)
@click.option("--name", default="default", show_default=True, help="Of this database's outbox.")
@click.option("--slot", type=click.IntRange(0), default=0, show_default=True, help="Which rows.")
@click.option("--move", is_flag=True, help="Use another node; one batch may be sent again.")
def relay(target: str, url: str, name: str, slot: int, move: bool) -> None:
    """Have the rows of an outbox become jobs, until a signal comes.

    MODULE:ENGINE names an Engine of SQLAlchemy, `shop.db:engine`.
    """
    serve(Relay(connection_of(target), url, name, slot), move)


@outbox.command("check", context_settings=HELP)
@click.argument("target", metavar="MODULE:ENGINE")
@click.option(
    "--most", type=FiniteRange(over=True), default=MOST_S, show_default=True, help="Seconds."
)
def check(target: str, most: float) -> None:
    """Exit 1 if a row has waited for longer than --most."""
    sys.exit(checked(connection_of(target), most))


def connection_of(target: str) -> Callable[[], Any]:
    """What makes connections; ClickException if there is no such Engine."""
    module, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        engine = getattr(importlib.import_module(module), name or "engine", None)
    except ModuleNotFoundError as err:
        raise click.ClickException(f"{target}: {err}") from None
    if not hasattr(engine, "dialect"):
        raise click.ClickException(f"{target} is no Engine of SQLAlchemy, but {engine!r}")
    from tuque.outbox.alchemy import connector

    made: Callable[[], Any] = connector(engine)
    return made


def serve(one: Relay, moves: bool) -> None:
    """Runs a relay in this process until TERM or INT; ClickException if it must not go on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: one.stop())
    try:
        one.run(moves)
    except (LostSlot, ConfigError) as err:
        raise click.ClickException(str(err)) from None


def checked(connect: Callable[[], Any], most_s: float) -> int:
    """Prints how many rows wait, and for how long; the exit code."""
    connection = connect()
    try:
        count, oldest_s = Tables(connection).waiting()
    finally:
        connection.close()
    click.echo(f"{count} rows wait, the oldest for {oldest_s:.1f} s")
    return 1 if oldest_s > most_s else 0
