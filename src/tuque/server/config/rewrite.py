"""CONFIG REWRITE: write the running options back to their file (SPEC C7.8).

Decides which lines of a TOML file change: comments, order and unchanged keys stay. For a
disque.conf disque/rewrite.py does that. The file is replaced as a whole, readable by its owner
only. It must not know the network.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from tuque.server.config.config import from_tree
from tuque.server.config.disque.rewrite import GENERATED, rewritten_conf
from tuque.server.config.faults import ConfigError
from tuque.server.config.options import OPTIONS, Config, find_option

TABLE_LINE = re.compile(r"\s*\[\s*([A-Za-z0-9_.\-]+)\s*\]\s*(#.*)?$")
KEY_LINE = re.compile(r"(\s*)([A-Za-z0-9_.\-]+)(\s*=\s*)(.*)$")


class RewriteError(Exception):
    """The file cannot be rewritten; `reply` is the error line for the client."""

    @property
    def reply(self) -> str:
        return f"ERR {self}"


def rewrite(cfg: Config) -> None:
    """Write options that differ from the file, or from the defaults, into their file.

    Raises RewriteError, without a change, when there is no file, when it is no longer valid, or
    when it cannot be written.
    """
    if not cfg.config_file:
        raise RewriteError("The server is running without a config file")
    path = Path(cfg.config_file)
    try:
        old = read_file(path)
        if cfg.config_syntax == "toml":
            text = rewritten(cfg, old)
        else:
            text = rewritten_conf(cfg, old, cfg.config_file)
        replace_file(path, text)
    except ConfigError as err:
        raise RewriteError(f"Rewriting config file: {err}") from None
    except (OSError, UnicodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "it is not UTF-8"
        raise RewriteError(f"Rewriting config file: {reason}") from None


def read_file(path: Path) -> str:
    """The text with its original line ends; empty if the file is gone."""
    if not path.exists():
        return ""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def rewritten(cfg: Config, old: str) -> str:
    """Return the new text of the file: edited in place if possible, else generated."""
    text = _edited(cfg, old)
    try:
        if not _wanted(cfg, text):
            return text
    except (tomllib.TOMLDecodeError, ConfigError):
        pass
    kept = [line + "\n" for line in old.splitlines() if line.startswith("#")]
    return _with_rest("".join(kept), _wanted(cfg, ""))


def _values(text: str) -> dict[str, Any]:
    return from_tree(tomllib.loads(text), "config file")


def _wanted(cfg: Config, text: str) -> dict[str, Any]:
    """Return the options whose value in `text` differs from the running one."""
    there = _values(text)
    missing = {}
    for field, opt in OPTIONS.items():
        running = getattr(cfg, field)
        written = there.get(field, opt.default)
        same = os.path.abspath(written) == running if field == "dir" else written == running
        if not same:
            missing[field] = running
    return missing


def _edited(cfg: Config, old: str) -> str:
    """Change the lines of keys that differ, and add missing ones."""
    try:
        wanted = _wanted(cfg, old)
    except (tomllib.TOMLDecodeError, ConfigError):
        return ""
    lines, prefix = [], ""
    for line in old.splitlines():
        table = TABLE_LINE.match(line)
        key = KEY_LINE.match(line)
        if table:
            prefix = table.group(1) + "."
        elif key:
            line = _edited_line(cfg, key, prefix, wanted)
        lines.append(line + "\n")
    body = "".join(lines)
    if prefix:  # a key after a table would belong to it: put new ones on top
        return _with_rest("", wanted) + body
    return _with_rest(body, wanted)


def _edited_line(cfg: Config, key: re.Match[str], prefix: str, wanted: dict[str, Any]) -> str:
    indent, name, equals, _ = key.groups()
    try:
        opt = find_option(prefix + name)
    except ConfigError:
        return key.group(0)
    if opt.field not in wanted:
        return key.group(0)
    value = wanted.pop(opt.field)
    return f"{indent}{name}{equals}{opt.kind.toml(value)}"


def _with_rest(text: str, rest: dict[str, Any]) -> str:
    """Append the options that the text lacks."""
    if not rest:
        return text
    lines = [f"{field} = {OPTIONS[field].kind.toml(value)}\n" for field, value in rest.items()]
    head = "" if GENERATED in text else GENERATED + "\n"
    return text + head + "".join(lines)


def replace_file(path: Path, text: str) -> None:
    """Write the text beside the file, sync it, and rename it into place; mode 0600."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(text.encode("utf-8", "surrogateescape"))
            out.flush()
            os.fsync(out.fileno())
        os.replace(scratch, path)
        place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(place)
        finally:
            os.close(place)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
