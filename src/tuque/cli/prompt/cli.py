"""`tuque cli`: one command from the shell, or a prompt.

Decides options, output mode and exit status: 0 if all replies were good, 1 for an error reply or an
unreachable node, 2 for wrong options.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import click
from click.core import ParameterSource

from tuque import terminal
from tuque.cli import replies as show
from tuque.cli.replies import advice, answers_facts, as_facts, describe
from tuque.client.transport.conn import ErrorReply
from tuque.client.transport.raw_link import Link, LinkError, Reply, Target
from tuque.lazygroup import FiniteRange
from tuque.nodeoptions import HOST, PORT, NodeOptions, came_from, node_options

MODES: Final = ("auto", "tty", "raw", "csv", "json")


class Output:
    """Writes replies in one mode; auto is tty on terminals, else text that is safe in pipes.

    On a terminal names and values become a table, unless types were requested.
    """

    def __init__(self, mode: str, delimiter: bytes = b"\n") -> None:
        self.has_tables = mode == "auto"
        if mode == "auto":
            mode = "tty" if sys.stdout.isatty() or "FAKETTY" in os.environ else "text"
        self.mode = mode
        self.delimiter = delimiter

    def put(self, reply: Reply, words: list[bytes]) -> None:
        """Write one reply and a newline; advice about errors goes to standard error."""
        sys.stdout.flush()
        sys.stdout.buffer.write(self.render(reply, words) + b"\n")
        sys.stdout.buffer.flush()
        if isinstance(reply, ErrorReply) and (help_line := advice(reply, words)):
            click.echo(f"hint: {terminal.printable(help_line)}", err=True)

    def render(self, reply: Reply, words: list[bytes]) -> bytes:
        if self.mode == "csv":
            return show.csv(reply).encode()
        if self.mode == "json":
            return show.as_json(reply).encode()
        if self.mode == "tty" and self.has_tables and answers_facts(words):
            if facts := as_facts(reply):
                return facts.encode("utf-8", "surrogateescape")
        if self.mode == "tty" and not (isinstance(reply, bytes) and show.answers_plain_text(words)):
            return show.for_terminal(reply).encode()
        if self.mode == "tty":
            return show.plain(reply).rstrip(b"\r\n")
        if self.mode == "text":
            return show.plain(reply, self.delimiter)
        return show.raw(reply, self.delimiter)


def target_of(node: NodeOptions, unixsocket: str = "") -> Target:
    """Make a target of the options; of a URL with several nodes the first counts.

    A URL from the environment does not override a typed socket.
    """
    if unixsocket and not came_from("url", ParameterSource.COMMANDLINE):
        return Target(node.host, node.port, unixsocket, node.password, node.user)
    found = node.settings()
    if found.tls:
        raise click.BadParameter("tuques:// is TLS, which this command does not speak")
    host, port = found.seeds[0]
    login = (found.password or node.password, found.user or node.user)
    return Target(host, port, "", *login) if port else Target(HOST, PORT, host, *login)


def is_shutdown(words: list[bytes]) -> bool:
    return bool(words) and words[0].upper() == b"SHUTDOWN"


def run_words(link: Link, output: Output, words: list[bytes]) -> bool:
    """Run one command and show its reply; True unless it was an error."""
    try:
        reply = link.call(words)
        output.put(reply, words)
        if words[0].upper() == b"MONITOR" and not isinstance(reply, ErrorReply):
            while True:
                output.put(link.read(), words)
    except LinkError as err:
        if is_shutdown(words) and err.sent:
            return True
        sent = "; the command may have been done" if err.sent else ""
        click.echo(terminal.printable(f"{err}{sent}"), err=True)
        return False
    return not isinstance(reply, ErrorReply)


def run_times(
    link: Link, output: Output, words: list[bytes], repeat: int, interval_s: float
) -> bool:
    """Run one command `repeat` times, -1 = until it fails."""
    good = True
    done = 0
    while repeat < 0 or done < repeat:
        if done and interval_s > 0:
            time.sleep(interval_s)
        good = run_words(link, output, words)
        if not good and link.wire is None:
            return False
        done += 1
    return good


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Without a command: a prompt. Example: tuque cli ADDJOB mail 'hello' 100",
)
@node_options
@click.option("-s", "--socket", "unixsocket", default="", help="Unix socket instead.")
@click.option("-r", "--repeat", default=1, help="Do the command n times; -1 = for ever.")
@click.option("-i", "--interval", type=FiniteRange(), default=0.0, help="Seconds between repeats.")
@click.option("-x", "stdin_last", is_flag=True, help="The last argument is standard input.")
@click.option("-d", "delimiter", default="\\n", help="Between array elements without types.")
@click.option(
    "--raw", "mode", flag_value="raw", help="Bytes as they are, control characters included."
)
@click.option("--no-raw", "mode", flag_value="tty", help="With types (default on terminals).")
@click.option("--csv", "mode", flag_value="csv", help="Comma separated values.")
@click.option("--json", "mode", flag_value="json", help="One line of JSON per reply.")
@click.help_option("--help")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def cli(
    node: NodeOptions,
    unixsocket: str,
    repeat: int,
    interval: float,
    stdin_last: bool,
    delimiter: str,
    mode: str | None,
    words: tuple[str, ...],
) -> None:
    """Send a command to a node and print the reply; `help COMMAND` explains one."""
    if words and words[0].lower() == "help" and len(words) < 3:  # not a node's command
        click.echo(describe(words[1] if len(words) > 1 else ""))
        return
    link = Link(target_of(node, unixsocket))
    between = (
        delimiter.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1")
    )
    output = Output(mode or "auto", between)
    try:
        if words:
            command = [os.fsencode(word) for word in words]
            if stdin_last:
                command.append(sys.stdin.buffer.read())
            good = run_times(link, output, command, repeat, interval)
        else:
            from tuque.cli.prompt.repl import run_prompt

            good = run_prompt(link, output)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    finally:
        link.close()
    sys.exit(0 if good else 1)
