"""The options that name a node: the same for all commands that talk to one.

Decides which of them counts. A typed option overrides the environment. A password fills in what a
URL leaves open; typed options that name two nodes, or two users, are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from tuque.client.url import Settings
    from tuque.errors import Error

HOST: Final = "127.0.0.1"
PORT: Final = 7711
IS_IT_RUNNING: Final = ". Is the node running? `tuque server` starts one; -h and -p choose another."


@dataclass(frozen=True)
class NodeOptions:
    """What the options of the running command say."""

    host: str
    port: int
    url: str
    password: str
    user: str

    def settings(self) -> Settings:
        """The node, checked as the client checks a URL; BadParameter says what is wrong."""
        from tuque.client.url import parse
        from tuque.errors import ConfigError

        try:
            return parse(self.full_url())
        except ConfigError as err:
            raise click.BadParameter(str(err), param_hint="'--url'") from None

    def full_url(self) -> str:
        """The URL of the node, with the password."""
        is_url = self.url and not (
            came_from("host port unixsocket", ParameterSource.COMMANDLINE)
            and came_from("url", ParameterSource.ENVIRONMENT)
        )
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = self.url if is_url else f"tuque://{host}:{self.port}"
        scheme, mark, rest = url.partition("://")
        if not (self.user or self.password) or "@" in rest.partition("?")[0]:
            return url
        return f"{scheme}{mark}{quote(self.user, '')}:{quote(self.password, '')}@{rest}"

    def client_url(self) -> str | None:
        """The URL for a client; None when no option says anything."""
        is_typed = came_from("host port user", ParameterSource.COMMANDLINE)
        if is_typed or self.url or self.password:
            self.settings()
            return self.full_url()
        return None


def node_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options; it gets them as one argument `node`."""

    @functools.wraps(command)
    def with_node(
        *args: Any, host: str, port: int, url: str, password: str, user: str, **rest: Any
    ) -> Any:
        refuse_two_nodes(url)
        return command(*args, node=NodeOptions(host, port, url, password, user), **rest)

    wrapped: Callable[..., Any] = with_node
    for option in (
        click.option("--user", default="", help="User name, with a password."),
        click.option(
            "-a", "--password", default="", envvar="TUQUE_PASSWORD", help="Or TUQUE_PASSWORD."
        ),
        click.option(
            "-u", "--url", default="", envvar="TUQUE_URL", help="tuque://[user:pw@]host:port"
        ),
        click.option(
            "-p", "--port", default=PORT, show_default=True, type=click.IntRange(1, 65535)
        ),
        click.option("-h", "--host", default=HOST, show_default=True, help="Node to talk to."),
    ):
        wrapped = option(wrapped)
    return wrapped


def refuse_two_nodes(url: str) -> None:
    """BadParameter for a typed option that a typed --url would make void."""
    typed = ParameterSource.COMMANDLINE
    if not came_from("url", typed):
        return
    options = ["host", "port"]
    if "@" in url.partition("://")[2].partition("?")[0]:
        options += ["user", "password"]
    for name in options:
        if came_from(name, typed):
            raise click.BadParameter(
                f"the URL has its own: give --url or --{name}, not both", param_hint=f"'--{name}'"
            )


def refuse_before(context: click.Context) -> None:
    """UsageError for an option before a subcommand, which has its own."""
    for param in context.command.params:
        if context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
            name = context.invoked_subcommand
            raise click.UsageError(f"{param.opts[-1]} goes behind the subcommand, {name}", context)


def came_from(names: str, source: ParameterSource) -> bool:
    """Whether one of the running command's options has its value from that source."""
    context = click.get_current_context(silent=True)
    return context is not None and any(
        context.get_parameter_source(name) is source for name in names.split()
    )


def ended(err: Error) -> click.ClickException:
    """How a command ends at this error: its text, and what to do for people."""
    from tuque.errors import ConnectionError, ReplyError
    from tuque.terminal import printable

    hint = IS_IT_RUNNING if isinstance(err, ConnectionError) else ""
    if isinstance(err, ReplyError) and err.advice:
        hint = f"\nhint: {err.advice}"
    return click.ClickException(printable(str(err)) + hint)
