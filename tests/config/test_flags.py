"""The flags of `tuque server`: every option is one, and trouble ends in one clear line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tuque.server.config.config import OPTIONS, config_flags, config_of_flags
from tuque.server.start.doors import check_files


@click.command()
@config_flags
def server(**flags: Any) -> None:
    cfg = config_of_flags(flags, check_files)
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


SECRET = b"Kq3vXw81LmPz0RtYb7NcSdFgHjQe52Ua"
NO_SECRETS = [
    SECRET + b"\0\n",
    SECRET.decode().encode("utf-16"),
    SECRET + b"\xe4\n",
    b"\r\n" + SECRET + b"\r\n",
]


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        *(("cluster_secret_file", text, "cluster-secret-file: ") for text in NO_SECRETS),
        ("users_file", b"user ann on >secret1 ~* +@all\n", "users-file: "),
        ("iproto_users_file", b"ann #12 all\n", "iproto-users-file: "),
        ("tls_cert_file", b"no certificate\n", "tls-key-file: "),
    ],
)
def test_check_config_reads_the_files_of_options(
    tmp_path: Path, option: str, text: bytes, told: str
) -> None:
    """C1.14 `--check-config` reads the files that the options name with the functions of the
    start: secrets, users, certificates.
    """
    (tmp_path / "file").write_bytes(text)
    (tmp_path / "file").chmod(0o600)
    words = ["--check-config", "--dir", str(tmp_path), "--set", "tls_port=1"]
    words = words if option.startswith("tls") else words[:3]
    bad = run(*words, "--set", f"{option}=file")
    assert bad.exit_code == 1 and f"tuque server: {told}" in bad.stderr
    assert "secret1" not in bad.output


def test_check_config_takes_good_files(tmp_path: Path) -> None:
    """C1.14 What it calls good does not fail the start."""
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    (tmp_path / "users").write_bytes(b"user ann on nopass ~* +@all\n")
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    words = ["--cluster-secret-file", "secret", "--users-file", "users"]
    good = run("--check-config", "--dir", str(tmp_path), *words)
    assert (good.exit_code, good.output) == (0, "the configuration is good\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("logfile", "taken"),
        ("logfile", "none/log"),
        ("logfile", "pipe"),
        ("logfile", "file/log"),
        ("events-dir", "file"),
        ("events-dir", "file/events"),
        ("audit-dir", "file/audit"),
        ("appenddirname", "file"),
    ],
)
def test_check_config_names_what_cannot_be_written(tmp_path: Path, option: str, value: str) -> None:
    """C1.14 It names a logfile, and directories of the journal, events and audit, that cannot be
    written, and makes none.
    """
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "taken").mkdir()
    os.mkfifo(tmp_path / "pipe", 0o600)
    before = sorted(tmp_path.rglob("*"))
    words = ["--dir", str(tmp_path), "--appendonly", "yes", "--events", "yes", "--set", "audit=yes"]
    bad = run("--check-config", *words, "--set", f"{option}={value}")
    assert bad.exit_code == 1 and f"tuque server: {option}: " in bad.stderr
    assert str(tmp_path / value) in bad.stderr
    good = run("--check-config", *words, "--set", f"{option}=new")
    assert good.exit_code == 0, good.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_warnings_do_not_stop(tmp_path: Path) -> None:
    conf = tmp_path / "disque.conf"
    conf.write_text("bind 127.0.0.1\nslave-priority 3\n")
    result = run(str(conf))
    assert result.exit_code == 0
    assert "warning: " in result.stderr and "slave-priority" in result.stderr
