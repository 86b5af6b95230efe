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
from tuque.metrics.listener import TEXT_TYPE, Listener, Page, fault, open_sockets
from tuque.metrics.text import (
    COUNTER,
    GAUGE,
    OPEN_TYPE,
    PLAIN_TYPE,
    Family,
    render,
    wants_open,
)
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
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="Serve /metrics and /healthz there, on loopback.",
)
def relay(
    target: str, url: str, name: str, slot: int, move: bool, metrics_port: int | None
) -> None:
    """Have the rows of an outbox become jobs, until a signal comes.

    MODULE:ENGINE names an Engine of SQLAlchemy, `shop.db:engine`.
    """
    serve(Relay(connection_of(target), url, name, slot), move, metrics_port)


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


def serve(one: Relay, moves: bool, metrics_port: int | None = None) -> None:
    """Runs a relay in this process until TERM or INT; ClickException if it must not go on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: one.stop())
    listener: Listener | None = None
    try:
        if metrics_port is not None:
            listener = listening(Meter(one), metrics_port)
        one.run(moves)
    except (LostSlot, ConfigError) as err:
        raise click.ClickException(str(err)) from None
    finally:
        if listener is not None:
            listener.close()


class Meter:
    """The pages of a relay. Each asks the database: what a relay that is stuck knows is old."""

    def __init__(self, one: Relay) -> None:
        self._relay = one

    def page(self, path: str, accept: str) -> Page | None:
        """The page of that path."""
        path = path.partition("?")[0]
        if path not in ("/metrics", "/healthz"):
            return fault(404, "there are /metrics and /healthz")
        if path == "/healthz":
            return Page(200, TEXT_TYPE, b"ok\n")
        try:
            rows, oldest_s = waiting(self._relay.connect)
        except Exception as err:  # of any driver
            return fault(503, f"the database does not answer: {err}")
        families = [
            Family("tuque_outbox_rows", GAUGE, "Rows that wait").add(rows),
            Family("tuque_outbox_oldest_seconds", GAUGE, "How long the oldest has waited").add(
                oldest_s
            ),
            Family("tuque_outbox_sent", COUNTER, "Rows that became jobs").add(self._relay.sent),
            Family("tuque_outbox_refused", COUNTER, "Times a row was refused").add(
                self._relay.refused
            ),
        ]
        is_open = wants_open(accept)
        return Page(200, OPEN_TYPE if is_open else PLAIN_TYPE, render(families, is_open))

    def take(self, path: str, accept: str) -> Page | None:
        """All pages are made at once."""
        return None

    def done(self) -> None:
        """All pages are made at once."""


def listening(meter: Meter, port: int) -> Listener:
    """Serves the pages on loopback. Raises ConfigError."""
    try:
        sockets = open_sockets(["127.0.0.1"], port)
    except OSError as error:
        why = f"can't listen on 127.0.0.1:{port}: {error.strerror}; choose another --metrics-port"
        raise ConfigError(why) from None
    listener = Listener(sockets, meter)
    listener.start()
    return listener


def waiting(connect: Callable[[], Any]) -> tuple[int, float]:
    """How many rows wait, and for how many seconds the oldest has."""
    connection = connect()
    try:
        return Tables(connection).waiting()
    finally:
        connection.close()


def checked(connect: Callable[[], Any], most_s: float) -> int:
    """Prints how many rows wait, and for how long; the exit code."""
    count, oldest_s = waiting(connect)
    click.echo(f"{count} rows wait, the oldest for {oldest_s:.1f} s")
    return 1 if oldest_s > most_s else 0
