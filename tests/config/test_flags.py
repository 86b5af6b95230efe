"""The flags of `tuque server`: every option is one, and trouble ends in one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tuque.server.config.config import OPTIONS, config_flags, config_of_flags


@click.command()
@config_flags
def server(**flags: Any) -> None:
    cfg = config_of_flags(flags)
    click.echo(f"would run on {cfg.port} in {cfg.dir}")


def run(*args: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(server, args, env=env)


def test_every_option_is_a_flag() -> None:
    flags = {name for param in server.params for name in param.opts}
    assert {f"--{opt.name}" for opt in OPTIONS.values()} <= flags


def test_help_is_one_screen_and_options_lists_all() -> None:
    assert len(run("--help").output.splitlines()) <= 40
    listed = run("--options").output
    for opt in OPTIONS.values():
        assert bool(opt.obsolete) != (f"--{opt.name}\n" in listed)


def test_flags_win_and_print_config_tells_the_origin(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("port = 1\nhz = 20\n")
    shown = run(
        str(file),
        "--port",
        "2",
        "--set",
        "timeout=3",
        "--print-config",
        env={"TUQUE__MAXCLIENTS": "4"},
    )
    assert shown.exit_code == 0
    for line in (
        "port = 2  # command line",
        f"hz = 20  # {file}",
        "timeout = 3  # command line",
        "maxclients = 4  # TUQUE__MAXCLIENTS",
        'loglevel = "notice"  # default',
    ):
        assert line in shown.output.splitlines()


def test_check_config_needs_a_dir_that_can_be_used(tmp_path: Path) -> None:
    good = run("--check-config", "--dir", str(tmp_path))
    assert (good.exit_code, good.output) == (0, "the configuration is good\n")
    bad = run("--check-config", "--dir", str(tmp_path / "no"))
    assert bad.exit_code == 1 and "a directory that exists" in bad.stderr


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["--port", "99999"], 1, "tuque server: port: '99999' is not allowed"),
        (["--set", "prot=1"], 2, "did you mean 'port'?"),
        (["--set", "port"], 2, "--set wants KEY=VALUE"),
        (["--prot", "1"], 2, "No such option"),
        (["/nonexistent.toml"], 1, "No such file"),
    ],
)
def test_trouble_ends_with_a_status_and_a_line(args: list[str], code: int, told: str) -> None:
    result = run(*args)
    assert result.exit_code == code
    assert told in result.stderr and "Traceback" not in result.output


def test_warnings_do_not_stop(tmp_path: Path) -> None:
    conf = tmp_path / "disque.conf"
    conf.write_text("bind 127.0.0.1\nslave-priority 3\n")
    result = run(str(conf))
    assert result.exit_code == 0
    assert "warning: " in result.stderr and "slave-priority" in result.stderr
