"""`tuque server`: options in, a running node, an exit status out."""

from __future__ import annotations

import sys
from typing import Any

import click

from tuque.server.app import StartError, run
from tuque.server.config.flags import config_flags, config_of_flags


@click.command()
@config_flags
def server(**flags: Any) -> None:
    """Run a node. CONFIG_FILE is TOML, or a disque.conf; `-` reads it from standard input."""
    cfg = config_of_flags(flags)
    try:
        sys.exit(run(cfg))
    except StartError as error:
        click.echo(f"tuque server: {error}", err=True)
        sys.exit(1)
