"""The options as flags of `tuque server`, and the checks that need no server.

Decides how flags become one Config, and the exit after a bad configuration. `--help` shows the
common flags, `--options` all; every option is a flag.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tuque.server.config.config import check_dir, load, print_lines, sample_toml
from tuque.server.config.faults import ConfigError
from tuque.server.config.kinds import Bool, Opt
from tuque.server.config.options import OPTIONS, Config

F = TypeVar("F", bound=Callable[..., Any])

# What `tuque server --help` shows; `--options` shows the rest.
COMMON = (
    "port",
    "bind",
    "dir",
    "unixsocket",
    "requirepass",
    "maxmemory",
    "maxclients",
    "appendonly",
    "appendfsync",
    "events",
    "loglevel",
    "logfile",
)
USAGE_EXIT = 2


def config_flags(command: F) -> F:
    """Add the config file, `--set`, the checks and a flag per option to a click command.

    The command gets them as keywords and passes them to `config_of_flags`.
    """
    for field, opt in reversed(OPTIONS.items()):
        command = _flag(field, opt)(command)
    command = click.option(
        "--options",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_list_options,
        help="List every option, its default and range.",
    )(command)
    command = click.option(
        "--sample-config",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_sample,
        help="Print a TOML file with all defaults.",
    )(command)
    command = click.option("--print-config", is_flag=True, help="Print each value and its origin.")(
        command
    )
    command = click.option("--check-config", is_flag=True, help="Check the options and stop.")(
        command
    )
    command = click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any option; may be repeated."
    )(command)
    return click.argument("config_file", required=False, type=click.Path(allow_dash=True))(command)


def _flag(field: str, opt: Opt) -> Callable[[F], F]:
    """Make the flag of one option: text that the option itself checks."""
    metavar = "yes|no" if isinstance(opt.kind, Bool) else opt.unit.upper() or "TEXT"
    return click.option(
        f"--{opt.name}",
        field,
        default=None,
        metavar=metavar,
        help=opt.help,
        hidden=field not in COMMON,
    )


def config_of_flags(flags: dict[str, Any]) -> Config:
    """Return the effective options, or exit: 1 for bad values, 2 for bad flags.

    Exits with 0 after `--check-config` and `--print-config`. Warnings go to standard error.
    """
    sets: dict[str, str] = {}
    for pair in flags["sets"]:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set wants KEY=VALUE, not '{pair}'")
        sets[key] = value
    sets.update({field: flags[field] for field in OPTIONS if flags.get(field) is not None})
    try:
        cfg = load(flags["config_file"], os.environ, sets)
        if flags["check_config"]:
            check_dir(cfg)
    except ConfigError as err:
        click.echo(f"tuque server: {err}", err=True)
        on_command_line = err.reason == "unknown" and err.where == "command line"
        sys.exit(USAGE_EXIT if on_command_line else 1)
    for warning in cfg.warnings:
        click.echo(f"warning: {warning}", err=True)
    if flags["print_config"]:
        click.echo("\n".join(print_lines(cfg)))
    elif flags["check_config"]:
        click.echo("the configuration is good")
    if flags["print_config"] or flags["check_config"]:
        sys.exit(0)
    return cfg


def _list_options(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if not given:
        return
    for opt in OPTIONS.values():
        if opt.obsolete:
            continue
        default = opt.kind.toml(opt.default).strip('"')
        facts = [f"default {default or 'none'}", opt.kind.allowed]
        facts += ["CONFIG SET" if opt.runtime else "", opt.unit]
        click.echo(f"--{opt.name}\n    {opt.help}\n    {'; '.join(one for one in facts if one)}")
    ctx.exit()


def _print_sample(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        click.echo(sample_toml(), nl=False)
        ctx.exit()
