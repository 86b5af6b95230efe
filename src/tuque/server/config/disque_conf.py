"""A `disque.conf` is read as Disque's server does: lines, quotes and includes.

Decides how a line splits into a directive and its arguments.

Must not know: which directives exist; config.py asks the table of options.
"""

from __future__ import annotations

from pathlib import Path

from tuque.server.config.kinds import ConfigError
from tuque.smallfile import read_small

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "a": "\a"}
NAMED = {char: name for name, char in ESCAPES.items()} | {"\\": "\\", '"': '"'}
BLANKS = " \t\r\n\0"
MAX_INCLUDES = 16
NO_NUL = "a line without it"


class Directive:
    """One line: `name` in lower case, its arguments, and `where` it stands."""

    def __init__(self, name: str, args: list[str], where: str) -> None:
        self.name, self.args, self.where = name, args, where


def _quoted(line: str, at: int) -> tuple[str, int]:
    """Read a quoted run that opens at `at`; returns the text and the index after the quote."""
    quote, out = line[at], []
    at += 1
    while at < len(line) and line[at] != quote:
        char = line[at]
        if char == "\\" and quote == '"' and at + 1 < len(line):
            if line[at + 1] == "x" and len(line) > at + 3 and _is_hex(line[at + 2 : at + 4]):
                out.append(chr(int(line[at + 2 : at + 4], 16)))
                at += 4
                continue
            at += 1
            char = ESCAPES.get(line[at], line[at])
        elif char == "\\" and line[at : at + 2] == "\\'":
            at += 1
            char = "'"
        out.append(char)
        at += 1
    if at >= len(line) or (at + 1 < len(line) and line[at + 1] not in BLANKS):
        raise ValueError("unbalanced quotes")
    return "".join(out), at + 1


def _is_hex(text: str) -> bool:
    return all(char in "0123456789abcdefABCDEF" for char in text)


def split_line(line: str) -> list[str]:
    """Split one line into words, honouring quotes; ValueError for an unclosed quote."""
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at] in BLANKS:
            at += 1
            continue
        word = ""
        while at < len(line) and line[at] not in BLANKS:
            if line[at] in "\"'":
                part, at = _quoted(line, at)
            else:
                part, at = line[at], at + 1
            word += part
        words.append(word)
    return words


def quoted(word: str) -> str:
    """Quote the word for `split_line`: bare if possible, else in double quotes."""
    if word and not word.startswith("#") and all(char.isprintable() for char in word):
        if not any(char in BLANKS + "\"'" for char in word):
            return word
    out = []
    for char in word:
        if char in NAMED:
            out.append("\\" + NAMED[char])
        elif char < " " or char == "\x7f":
            out.append(f"\\x{ord(char):02x}")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'


def looks_like_toml(text: str) -> bool:
    """Guess from the first line with content: TOML has `=` after its key, or `[table]`."""
    for line in text.split("\n"):
        line = line.strip()
        if line and not line.startswith("#"):
            return line.startswith("[") or "=" in line.split("#")[0].split('"')[0]
    return True


def read_directives(
    text: str, label: str, base: Path, depth: int = 0, files: list[str] | None = None
) -> list[Directive]:
    """Return all directives of `text`, with includes expanded in place.

    `label` names the file in messages; relative includes start at `base`, and are added to
    `files`. Raises ConfigError for a line that does not split, an unreadable include, or circular
    includes.
    """
    found: list[Directive] = []
    files = [] if files is None else files
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{label} line {number}"
        if not line.strip() or line.strip().startswith("#"):
            continue
        try:
            words = split_line(line.strip())
        except ValueError:
            raise ConfigError(line.split()[0], line.strip(), "closed quotes", where=where) from None
        if not words or not words[0] or not words[0].isprintable():
            raise ConfigError("config file", where, "the name of an option in each line")
        if "\0" in line or any("\0" in word for word in words):  # C1.14
            raise ConfigError(words[0], "NUL", NO_NUL, where=where)
        name = words[0].lower()
        if name == "include":
            found.extend(_included(words, where, base, depth, files))
        else:
            found.append(Directive(name, words[1:], where))
    return found


def _included(
    words: list[str], where: str, base: Path, depth: int, files: list[str]
) -> list[Directive]:
    if len(words) != 2 or depth >= MAX_INCLUDES:
        raise ConfigError(
            "include", " ".join(words[1:]), f"one path, {MAX_INCLUDES} deep at most", where=where
        )
    path = base / words[1]
    try:
        text = read_small(path, is_guarded=False).decode("utf-8", "surrogateescape")
    except OSError as err:
        raise ConfigError(
            "include", words[1], f"a file that can be read ({err.strerror})", where=where
        ) from None
    files.append(str(path.resolve()))
    return read_directives(text, str(path), base, depth + 1, files)
