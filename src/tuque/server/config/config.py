"""The effective options: default < file < environment < command line; CONFIG and flags (SPEC C1).

Decides precedence, origins and what may change at run time. The options are the table in
options.py.

Must not know: what the options do.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import click

from tuque.server.config.disque_conf import Directive, looks_like_toml, read_directives
from tuque.server.config.kinds import (
    MASK,
    Bool,
    ClusterSecret,
    ConfigError,
    Opt,
    Secret,
)
from tuque.server.config.options import ALIASES, OPTIONS, Config, find_option
from tuque.server.config.patterns import Glob
from tuque.smallfile import WEAK_SECRET, new_characters, read_small

__all__ = [
    "OPTIONS",
    "Config",
    "ConfigError",
    "check_dir",
    "config_get",
    "config_set",
    "in_dir",
    "listen_addresses",
    "load",
    "print_lines",
    "sample_toml",
    "toml_values",
]

ENV_PREFIX = "TUQUE__"
ENV_FAMILY = "TUQUE_"
# For the client, the console and the build: no mistakes in a server's environment.
ENV_OF_OTHERS = frozenset(
    (
        "TUQUE_URL",
        "TUQUE_WORKER_URL",
        "TUQUE_PASSWORD",
        "TUQUE_CONSOLE_ADMIN_PASSWORD",
        "TUQUE_CONSOLE_READER_PASSWORD",
        "TUQUE_DJANGO_ALIASES",
        "TUQUE_SPARK_TASKS",
        "TUQUE_HISTFILE",
        "TUQUE_INTERPRETED",
        "TUQUE_EXPECT_COMPILED",
    )
)
LOOPBACK = ("127.0.0.1", "::1")
CLOSED = "with no requirepass only loopback addresses; set requirepass, or protected-mode no"
PASSWORD_BYTES = 16  # minimum, where other machines can try passwords
WEAK = (
    f"at least {PASSWORD_BYTES} bytes, without those that repeat, where other machines can "
    "connect; make one with "
    "`openssl rand -base64 24`, or bind loopback addresses only, or set protected-mode no"
)
NO_SECRET = (
    "without a cluster-secret only loopback addresses; `tuque cluster secret` makes one: "
    "set cluster-secret or cluster-secret-file, the same on all nodes, or tls-cluster"
)
KEPT_SECRET = "another secret: it cannot be removed while the node runs"
WIDE_ARGS = frozenset(("bind", "cluster_bind", "client_output_buffer_limit"))


def load(
    path: str | None = None,
    env: Mapping[str, str] | None = None,
    sets: Mapping[str, str] | None = None,
) -> Config:
    """Return the checked options of `path` (TOML, disque.conf, `-` = stdin), `env` and `sets`.

    `sets` are `key=value` of the command line. Raises ConfigError with one clear line.
    """
    cfg = Config(bind=[], origin=dict.fromkeys(OPTIONS, "default"), warnings=[])
    if path is not None:
        _load_file(cfg, path)
    for key, text in sorted((env or {}).items()):
        if key.startswith(ENV_PREFIX):
            name = key[len(ENV_PREFIX) :].replace("__", ".")
            _put_text(cfg, find_option(name, f"from {key}"), text, key)
        elif key.startswith(ENV_FAMILY) and key not in ENV_OF_OTHERS:
            _take_misspelt(cfg, key, text)
    for name, text in (sets or {}).items():
        _put_text(cfg, find_option(name, "command line"), text, "command line")
    _check(cfg)
    return cfg


def _take_misspelt(cfg: Config, key: str, text: str) -> None:
    """Refuse an option spelt with one `_`; an unknown name is only a warning.

    Kubernetes puts variables such as TUQUE_PORT=tcp://... into containers of a service `tuque`.
    """
    name = key[len(ENV_FAMILY) :].lower()
    is_option = ALIASES.get(name, name) in OPTIONS
    if is_option and "://" not in text:
        hint = f"; write {ENV_PREFIX}{name.upper()}, with two underscores"
        raise ConfigError(key, "", hint, "unknown", "in the environment")
    cfg.warnings.append(f"{key} ignored: options in the environment begin with {ENV_PREFIX}")


def _put_text(cfg: Config, opt: Opt, text: str, origin: str) -> None:
    try:
        value = opt.kind.parse(text)
    except ValueError:
        shown = MASK if isinstance(opt.kind, Secret) else text
        raise ConfigError(opt.name, shown, opt.kind.allowed, where=f"from {origin}") from None
    _put(cfg, opt, value, origin)


def _put(cfg: Config, opt: Opt, value: Any, origin: str) -> None:
    setattr(cfg, opt.field, value)
    cfg.origin[opt.field] = origin
    if opt.obsolete and value != opt.default:
        cfg.warnings.append(f"{opt.name} has no effect ({origin}): {opt.obsolete}")


def _load_file(cfg: Config, path: str) -> None:
    if path == "-":
        text, label, base = sys.stdin.read(), "stdin", Path.cwd()
    else:
        label, base = path, Path.cwd()
        try:
            text = read_small(path, is_guarded=False).decode("utf-8", "surrogateescape")
        except OSError as err:
            raise ConfigError("config file", path, f"a readable file ({err.strerror})") from None
        cfg.config_file = str(Path(path).resolve())
        cfg.read_files = [cfg.config_file]
    suffix = Path(path).suffix.lower()
    is_toml = suffix == ".toml" or (suffix != ".conf" and looks_like_toml(text))
    cfg.config_syntax = "toml" if is_toml else "disque"
    if is_toml:
        _load_toml(cfg, text, label)
        return
    for directive in read_directives(text, label, base, files=cfg.read_files):
        _load_directive(cfg, directive)


def _load_toml(cfg: Config, text: str, label: str) -> None:
    for field, value in toml_values(text, label).items():
        _put(cfg, OPTIONS[field], value, label)


def toml_values(text: str, label: str) -> dict[str, Any]:
    """Return the options set in a TOML text; ConfigError for what is none, and as `from_tree`."""
    try:
        return from_tree(tomllib.loads(text), label)
    except ConfigError:
        raise
    except tomllib.TOMLDecodeError as err:
        raise ConfigError("config file", label, f"valid TOML ({err})") from None
    except ValueError:  # Python reads and writes at most 4,300 digits
        raise ConfigError("config file", label, "valid TOML (a number is too long)") from None
    except RecursionError:
        raise ConfigError("config file", label, "valid TOML (nested too deeply)") from None


def from_tree(tree: dict[str, Any], label: str) -> dict[str, Any]:
    """Return the options set in a TOML tree; ConfigError for unknown keys and bad values."""
    found: dict[str, Any] = {}
    for name, raw in _leaves(tree, ""):
        opt = find_option(name, f"in {label}")
        try:
            found[opt.field] = opt.kind.from_toml(raw)
        except ValueError:
            shown = MASK if isinstance(opt.kind, Secret) else str(raw)
            raise ConfigError(opt.name, shown, opt.kind.allowed, where=f"in {label}") from None
    return found


def _leaves(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Flatten the tables: `[events] dir = ...` is `events.dir`."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _load_directive(cfg: Config, line: Directive) -> None:
    """Take one line of a disque.conf; an unknown directive is only a warning."""
    if line.name == "rename-command":
        raise ConfigError(
            line.name,
            " ".join(line.args),
            "remove the line: commands keep their names here; DEBUG has enable-debug-command",
            where=line.where,
        )
    try:
        opt = find_option(line.name)
    except ConfigError:
        cfg.warnings.append(f"{line.where}: unknown directive '{line.name}' ignored")
        return
    if not line.args or (len(line.args) > 1 and opt.field not in WIDE_ARGS):
        raise ConfigError(opt.name, " ".join(line.args), "exactly one value", where=line.where)
    _put_text(cfg, opt, " ".join(line.args), line.where)


def _check(cfg: Config) -> None:
    """Refuse invalid combinations of options, and make `dir` absolute."""
    cfg.dir = os.path.abspath(cfg.dir)
    hard, soft, _ = cfg.client_output_buffer_limit
    if hard and soft > hard:
        shown = OPTIONS["client_output_buffer_limit"].kind.show(cfg.client_output_buffer_limit)
        raise ConfigError("client-output-buffer-limit", shown, "a soft limit below the hard one")
    cfg.is_open = not all(map(is_loopback, listen_addresses(cfg)))
    if cfg.is_open and cfg.protected_mode and not cfg.requirepass and not cfg.users_file:
        raise ConfigError("bind", " ".join(cfg.bind), CLOSED, where=f"from {cfg.origin['bind']}")
    if cfg.is_open and cfg.protected_mode and is_weak(cfg.requirepass):
        where = f"from {cfg.origin['requirepass']}"
        raise ConfigError("requirepass", MASK, WEAK, where=where)
    check_bus(cfg)
    if cfg.protected_mode and not cfg.bind and is_weak(cfg.requirepass):
        cfg.warnings.append(f"requirepass is short, listening on loopback only: {WEAK}")
    if cfg.config_syntax == "disque" and not cfg.bind and not cfg.requirepass:
        cfg.warnings.append(
            "no bind and no requirepass: listening on loopback only (Disque listens on all)"
        )


def is_weak(password: str) -> bool:
    """[C1] Whether a password is too short for an open port (C1.4)."""
    text = password.encode("utf-8", "surrogateescape").decode("latin-1")
    return text != "" and new_characters(text) < PASSWORD_BYTES


def check_bus(cfg: Config) -> None:
    """[B1] Allow a bus open to other machines only with a secret, or with TLS (B1.8)."""
    if (cfg.cluster_secret or cfg.cluster_secret_also) and cfg.cluster_secret_file:
        allowed = "the file or the options, not both"
        raise ConfigError("cluster-secret-file", cfg.cluster_secret_file, allowed)
    if cfg.cluster_secret_also and not cfg.cluster_secret:
        raise ConfigError("cluster-secret-also", MASK, "only beside a cluster-secret")
    if not cfg.cluster_secret and not cfg.cluster_secret_file and not cfg.tls_cluster:
        if not all(map(is_loopback, cfg.cluster_bind)):
            where = f"from {cfg.origin['cluster_bind']}"
            raise ConfigError("cluster-bind", " ".join(cfg.cluster_bind), NO_SECRET, where=where)


def cluster_secrets(cfg: Config) -> list[bytes]:
    """The cluster's secret and the one accepted beside it, or none; ConfigError for a bad file."""
    if not cfg.cluster_secret_file:
        return [one.encode() for one in (cfg.cluster_secret, cfg.cluster_secret_also) if one]
    opt = OPTIONS["cluster_secret_file"]
    try:
        path = in_dir(cfg, cfg.cluster_secret_file)
        text = read_small(path, is_guarded=cfg.protected_mode)
    except OSError as err:
        allowed = f"a file this user can read ({err.strerror})"
        raise ConfigError(opt.name, cfg.cluster_secret_file, allowed) from None
    lines = [line[:1024].strip() for line in [*text.splitlines()[:2], b"", b""][:2]]
    try:
        kind = OPTIONS["cluster_secret"].kind
        found = [kind.parse(line.decode()).encode() for line in lines if line]
    except ValueError:
        found = []
    if not found or not lines[0]:
        allowed = f"a file whose first line is {WEAK_SECRET}"
        raise ConfigError(opt.name, cfg.cluster_secret_file, allowed)
    return found


def announced_port(cfg: Config) -> int:
    """[X1] The port that the node announces to other nodes and clients (X1.5)."""
    return cfg.cluster_announce_port or cfg.port or cfg.tls_port


def bus_addresses(cfg: Config, is_guarded: bool) -> list[str]:
    """Return the addresses of the bus; the first must work."""
    if cfg.cluster_bind:
        return _expanded(cfg.cluster_bind)
    return listen_addresses(cfg) if is_guarded else list(LOOPBACK)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `address`."""
    return address in ("localhost", "::1") or address.startswith("127.")


def listen_addresses(cfg: Config) -> list[str]:
    """Return the addresses to listen on; the first must work, `::` and `::1` may be missing."""
    if not cfg.bind:
        is_closed = cfg.protected_mode and (not cfg.requirepass or is_weak(cfg.requirepass))
        return list(LOOPBACK) if is_closed else ["0.0.0.0", "::"]
    return _expanded(cfg.bind)


def _expanded(names: list[str]) -> list[str]:
    out: list[str] = []
    for name in names:
        out.extend(["0.0.0.0", "::"] if name == "*" else [name])
    return out


def in_dir(cfg: Config, name: str) -> str:
    """Return the absolute path of a file option's value."""
    return os.path.join(cfg.dir, name)


def check_dir(cfg: Config) -> None:
    """Check that `dir` exists and is writable; ConfigError otherwise."""
    where = f"from {cfg.origin['dir']}"
    if not os.path.isdir(cfg.dir):
        raise ConfigError("dir", cfg.dir, "a directory that exists", where=where)
    if not os.access(cfg.dir, os.W_OK | os.X_OK):
        raise ConfigError("dir", cfg.dir, "a directory this user can write", where=where)


def config_get(cfg: Config, pattern: str) -> list[tuple[str, str]]:
    """Return name and value of each option that matches the glob, Disque's order first."""
    glob = Glob(pattern.lower())
    return [
        (opt.name, opt.kind.show(getattr(cfg, field)))
        for field, opt in OPTIONS.items()
        if not opt.hidden and glob.matches(opt.name)
    ]


def config_set(cfg: Config, name: str, value: str) -> None:
    """Change one option of the running server; ConfigError, and no change, if it cannot."""
    opt = find_option(name)
    if opt.hidden:
        raise ConfigError(name, value, "", "unknown")
    if not opt.runtime:
        raise ConfigError(opt.name, value, opt.kind.allowed, "immutable")
    try:
        parsed = opt.kind.parse(value)
    except ValueError:
        if isinstance(opt.kind, ClusterSecret):
            raise ConfigError(opt.name, MASK, opt.kind.allowed, "weak") from None
        shown = MASK if isinstance(opt.kind, Secret) else value
        raise ConfigError(opt.name, shown, opt.kind.allowed) from None
    _keep_secret(cfg, opt, parsed)
    if opt.field == "requirepass" and not parsed and cfg.is_open and cfg.protected_mode:
        raise ConfigError(opt.name, value, CLOSED)
    if opt.field == "requirepass" and cfg.is_open and cfg.protected_mode and is_weak(parsed):
        raise ConfigError(opt.name, MASK, WEAK, "weak")
    setattr(cfg, opt.field, parsed)
    cfg.origin[opt.field] = "CONFIG SET"


def _keep_secret(cfg: Config, opt: Opt, parsed: Any) -> None:
    """[B1] Refuse to remove the secret of a running node, or to have two places for it (B1.6)."""
    is_first = opt.field in ("cluster_secret", "cluster_secret_file")
    if is_first and not parsed and getattr(cfg, opt.field):
        raise ConfigError(opt.name, MASK, KEPT_SECRET, "weak")
    if opt.field in ("cluster_secret", "cluster_secret_also", "cluster_secret_file"):
        after = copy(cfg)
        setattr(after, opt.field, parsed)
        try:
            check_bus(after)
            cluster_secrets(after)
        except ConfigError as error:
            raise ConfigError(opt.name, MASK, error.allowed, "weak") from None


def print_lines(cfg: Config) -> list[str]:
    """Return the effective options as TOML, each with its origin as a comment."""
    lines = []
    for field, opt in OPTIONS.items():
        if opt.obsolete and cfg.origin[field] == "default":
            continue
        value = getattr(cfg, field)
        is_secret = isinstance(opt.kind, Secret)
        literal = f'"{opt.kind.show(value)}"' if is_secret else opt.kind.toml(value)
        lines.append(f"{opt.field} = {literal}  # {cfg.origin[field]}")
    return lines


def sample_toml() -> str:
    """Return a file with every option at its default, commented out."""
    blocks = [
        "# Options of `tuque server`. Each line shows the default; remove the # to change it."
    ]
    for field, opt in OPTIONS.items():
        if not opt.obsolete:
            unit = f" [{opt.unit}]" if opt.unit else ""
            when = "; CONFIG SET can change it" if opt.runtime else ""
            blocks.append(
                f"# {opt.help}{unit}\n# allowed: {opt.kind.allowed}{when}\n"
                f"#{field} = {opt.kind.toml(opt.default)}"
            )
    return "\n\n".join(blocks) + "\n"


# ---- The options as flags of `tuque server`, and the checks that need no server
#
# Decides how flags become one Config, and the exit after a bad configuration. `--help` shows the
# common flags, `--options` all; every option is a flag.


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


def config_of_flags(flags: dict[str, Any], check: Callable[[Config], None]) -> Config:
    """Return the effective options, or exit: 1 for bad values, 2 for bad flags.

    `check` looks into the files that the options name, and raises ConfigError. Exits with 0 after
    `--check-config` and `--print-config`. Warnings go to standard error.
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
            check(cfg)
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
