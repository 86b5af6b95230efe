"""`manage.py tuque_relay`: has the rows of the outbox become jobs, until a signal comes."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from tuque.outbox.main import MOST_S, checked, serve
from tuque.outbox.relay import Relay
from tuque.worker.app.app import DEFAULT_URL, URL_VARIABLE


class Command(BaseCommand):
    """The relay of one database."""

    help = "Has the rows of the outbox become jobs, until a signal comes."

    def add_arguments(self, parser: Any) -> None:
        """As those of `tuque outbox relay`."""
        broker = os.environ.get(URL_VARIABLE, DEFAULT_URL)
        parser.add_argument("--database", default="default", help="Of DATABASES.")
        parser.add_argument("--url", default=broker, help="The broker; else TUQUE_URL.")
        parser.add_argument("--name", default="default", help="Of this database's outbox.")
        parser.add_argument("--slot", type=int, default=0, help="Which rows.")
        parser.add_argument("--move", action="store_true", help="Use another node.")
        parser.add_argument("--metrics-port", type=int, help="Serve /metrics there, on loopback.")
        parser.add_argument("--check", action="store_true", help="Exit 1 if a row waits too long.")
        parser.add_argument("--most", type=float, default=MOST_S, help="Seconds, for --check.")

    def handle(self, *words: str, **options: Any) -> None:
        """Runs it in this process."""
        one = connections[options["database"]]

        def connect() -> Any:
            return one.get_new_connection(one.get_connection_params())

        try:
            if options["check"]:
                sys.exit(checked(connect, options["most"]))
            relay = Relay(connect, options["url"], options["name"], options["slot"])
            serve(relay, options["move"], options["metrics_port"])
        except click.ClickException as err:
            raise CommandError(err.message) from None
