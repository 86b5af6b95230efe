"""The prompt of `tuque cli`: history, completion and hints; one command per line.

Decides which lines have a meaning here (help, connect, clear, exit, a repeat count) and which go to
the node. With prompt_toolkit it completes; without, it reads plain lines and says so.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tuque.cli.prompt.cli import Output, is_shutdown, run_times
from tuque.cli.replies import (
    LOCAL,
    Row,
    commands,
    describe,
    keywords,
)
from tuque.client.transport.raw_link import Link, LinkError, Target

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completion
    from prompt_toolkit.document import Document

SLOW_S = 0.5
SECRET = ("AUTH", "HELLO", "CONFIG SET REQUIREPASS", "ACL SETUSER")
ReadLine = Callable[[str], str]

# [C2.1] The node's `wire/proto/strict_reader.py` has the same grammar; here no node is installed.
BLANK: Final = b" \t\v\f\r\0"
WORD: Final = re.compile(
    rb"""([^ \t\v\f\r\0"']*+)
    (?:  "((?:\\(?:x[0-9A-Fa-f]{2}|.)|[^"\\])*+)"  (?=[ \t\v\f\r]|\Z)
      |  '((?:\\'|[^'])*+)'  (?=[ \t\v\f\r]|\Z)
      |  (?=[ \t\v\f\r\0]|\Z)  )""",
    re.DOTALL | re.VERBOSE,
)
ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def run_prompt(link: Link, output: Output) -> bool:
    """Read and run lines until the end of input; True unless the last command failed."""
    interactive = sys.stdin.isatty()
    try:
        link.open()
    except LinkError as err:
        click.echo(str(err), err=True)
        if not interactive:
            return False
    read_line = _reader() if interactive else _plain_reader
    good = True
    while True:
        prompt = f"{link.target}> " if link.wire is not None else "not connected> "
        try:
            text = read_line(prompt if interactive else "")
        except EOFError:
            return good
        except KeyboardInterrupt:
            continue
        for line in whole_lines(text):
            if line.strip().lower() in ("exit", "quit"):
                return good
            good = _on_line(link, output, line, good)


def whole_lines(text: str) -> Iterable[str]:
    """Split pasted text into commands; a line break inside quotes belongs to the argument."""
    held = ""
    for line in text.split("\n"):
        held = f"{held}\n{line}" if held else line
        if split_words(held) is not None:
            yield held
            held = ""
    if held:
        yield held


def split_words(line: str) -> list[bytes] | None:
    """Split a line as the node splits inline commands (C2.1); None for an unclosed quote."""
    data = line.encode("utf-8", "surrogateescape")
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(data) and data[at] in BLANK:
            at += 1
        if at == len(data):
            return words
        found = WORD.match(data, at)
        if found is None:
            return None
        plain, double, single = found.groups(b"")
        words.append(plain + ESCAPE.sub(_escaped, double) + single.replace(b"\\'", b"'"))
        at = found.end()


def _escaped(found: re.Match[bytes]) -> bytes:
    """The byte that an escape in double quotes stands for."""
    digits, sign = found.groups(b"")
    return bytes.fromhex(digits.decode()) if digits else ESCAPES.get(sign, sign)


def _on_line(link: Link, output: Output, line: str, good: bool) -> bool:
    """Run one line; returns whether the last command to a node succeeded."""
    words = split_words(line)
    if words is None:
        click.echo("Invalid argument(s): a quote is not closed", err=True)
        return False
    if not words:
        return good
    name = words[0].decode("utf-8", "replace").lower()
    if name in ("help", "?"):
        click.echo(describe(words[1].decode("utf-8", "replace") if len(words) > 1 else ""))
    elif name == "clear":
        click.clear()
    elif name == "connect":
        return _go_to(link, words)
    else:
        return _send(link, output, words)
    return good


def _go_to(link: Link, words: list[bytes]) -> bool:
    if len(words) != 3 or not words[2].isdigit():
        click.echo("usage: connect host port", err=True)
        return False
    old = link.target
    link.target = Target(words[1].decode(), int(words[2]), "", old.password, old.user)
    try:
        link.open()
    except LinkError as err:
        click.echo(str(err), err=True)
        return False
    return True


def _send(link: Link, output: Output, words: list[bytes]) -> bool:
    """Send to the node, as often as a leading number says; report a slow reply."""
    repeat = 1
    if len(words) > 1 and words[0].isdigit():
        repeat, words = int(words[0]), words[1:]
    began = time.monotonic()
    try:
        good = run_times(link, output, words, repeat, 0)
    except KeyboardInterrupt:
        link.close()  # a reply may still arrive: only a new connection is in step
        click.echo("interrupted; the command may have been done", err=True)
        return False
    took = time.monotonic() - began
    if took >= SLOW_S and not is_shutdown(words):
        click.echo(f"({took:.2f} s)")
    if words[0].upper() == b"AUTH" and good:
        link.target.password = words[-1].decode("utf-8", "surrogateescape")
        link.target.user = words[1].decode("utf-8", "surrogateescape") if len(words) > 2 else ""
    return good


def _plain_reader(prompt: str) -> str:
    return input(prompt)


def history_path() -> Path | None:
    """Return the history file, readable only by its owner; None = keep none."""
    named = os.environ.get("TUQUE_HISTFILE")
    path = Path(named) if named else Path("~/.tuque_history").expanduser()
    try:
        path.touch(mode=0o600)
        if stat.S_IMODE(path.stat().st_mode) & 0o077 and not named:
            path.chmod(0o600)
    except OSError:
        return None
    return path


def _reader() -> ReadLine:
    """Return the best installed way to read a line."""
    try:
        import prompt_toolkit
        from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import FileHistory, History, InMemoryHistory
    except ModuleNotFoundError:
        click.echo("no completion and history: pip install 'tuque[cli]' brings them", err=True)
        return _plain_reader

    class Words(Completer):
        """Completes names first, then the words of the command's syntax."""

        def get_completions(self, document: Document, event: object) -> Iterable[Completion]:
            before = document.text_before_cursor.lstrip()
            for word, text in completions(before):
                typed_chars = len(before) - max(before.rfind(" "), before.rfind("\t")) - 1
                yield Completion(word, start_position=-typed_chars, display_meta=text)

    class SafeHistory(FileHistory):
        """Stores no passwords."""

        def store_string(self, string: str) -> None:
            if not " ".join(string.upper().split()).startswith(SECRET):
                super().store_string(string)

    path = history_path()
    history: History = SafeHistory(str(path)) if path else InMemoryHistory()
    session: prompt_toolkit.PromptSession[str] = prompt_toolkit.PromptSession(
        history=history,
        completer=Words(),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        bottom_toolbar=lambda: hint(session.default_buffer.text),
    )
    return session.prompt


def completions(before: str) -> list[tuple[str, str]]:
    """Return the words that can stand at the end of `before`, each with a short help."""
    words = before.split()
    fresh = before.endswith(" ") or not words
    if not words or (len(words) == 1 and not fresh):
        typed = words[0] if words else ""
        found = [(row.name, row.syntax) for row in commands().values()]
        found += [(name, text) for name, (_, text) in LOCAL.items()]
        return [(name, text) for name, text in found if name.lower().startswith(typed.lower())]
    typed = "" if fresh else words[-1]
    if words[0].lower() == "help":
        found = [(row.name, row.summary) for row in commands().values()]
    else:
        found = [(word, "") for word in keywords(words[0])]
    return [(word, text) for word, text in found if word.lower().startswith(typed.lower())]


def short_usage(row: Row, words: list[str]) -> str:
    """One-line usage: of the subcommand being typed, or the names of those that match."""
    ways = row.ways.splitlines()
    if len(ways) == 1:
        return f"{row.usage}  -  {row.summary}"
    typed = words[1].upper() if len(words) > 1 else ""
    by_name = {way.split()[1]: way for way in ways}
    fit = [name for name in by_name if name.startswith(typed)] or list(by_name)
    if typed in by_name or len(fit) == 1:
        return by_name[typed if typed in by_name else fit[0]]
    return f"{row.name} {' | '.join(fit)}"


def hint(text: str) -> str:
    """Return the usage of the command being typed."""
    words = text.split()
    if not words:
        return "help lists the commands; Tab completes; exit leaves"
    if words[0].isdigit() and len(words) > 1:  # a repeat count
        words = words[1:]
    first = words[0]
    row = commands().get(first.upper())
    if row is not None:
        return short_usage(row, words)
    if first.lower() in LOCAL:
        args, summary = LOCAL[first.lower()]
        return f"{first.lower()} {args}  -  {summary}"
    near = [name for name in commands() if name.startswith(first.upper())]
    return "  ".join(near[:12])
