"""A disque.conf is read as Disque reads it; what Tuque does not know is told, not hidden."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuque.server.config.config import ConfigError, load
from tuque.server.config.disque_conf import looks_like_toml, read_directives, split_line


def conf(tmp_path: Path, text: str) -> str:
    path = tmp_path / "disque.conf"
    path.write_text(text)
    return str(path)


def test_the_usual_file(tmp_path: Path) -> None:
    cfg = load(
        conf(
            tmp_path,
            "# Disque\n\nport 7712\nBIND 127.0.0.1 ::1\nmaxmemory 512mb\nappendonly yes\n"
            'requirepass "a \\"b\\" \\x41"\nclient-output-buffer-limit normal 2mb 1mb 60\n'
            "unixsocketperm 700\nappendfsync always\ntcp-keepalive 60\ndatabases 16\n",
        )
    )
    assert (cfg.port, cfg.bind, cfg.maxmemory) == (7712, ["127.0.0.1", "::1"], 512 << 20)
    assert cfg.appendonly and cfg.appendfsync == "always" and cfg.requirepass == 'a "b" A'
    assert cfg.client_output_buffer_limit == (2 << 20, 1 << 20, 60)
    assert (cfg.unixsocketperm, cfg.tcp_keepalive) == (0o700, 60)
    assert cfg.warnings == [] and cfg.config_syntax == "disque"


def test_unknown_and_obsolete_directives_are_told(tmp_path: Path) -> None:
    cfg = load(conf(tmp_path, "bind 127.0.0.1\nslave-priority 5\nappendfilename my.aof\nhz 50\n"))
    assert len(cfg.warnings) == 2
    assert "line 2: unknown directive 'slave-priority'" in cfg.warnings[0]
    assert "appendfilename has no effect" in cfg.warnings[1] and "journal import" in cfg.warnings[1]


def test_a_file_that_relied_on_all_addresses_is_told(tmp_path: Path) -> None:
    assert "loopback" in load(conf(tmp_path, "port 7711\n")).warnings[0]


def test_includes_in_place_and_not_for_ever(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("port 2\nhz 20\n")
    cfg = load(conf(tmp_path, f"port 1\ninclude {tmp_path}/more.conf\nhz 30\n"))
    assert (cfg.port, cfg.hz) == (2, 30)
    with pytest.raises(ConfigError, match="16 deep"):
        load(conf(tmp_path, f"include {tmp_path}/disque.conf\n"))
    with pytest.raises(ConfigError, match="No such file"):
        load(conf(tmp_path, "include /nonexistent.conf\n"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("port 99999", "0..65535"),
        ("port", "exactly one value"),
        ("cluster-node-timeout 50", "500 or more"),
        ("port 1 2", "exactly one value"),
        ('requirepass "open', "closed quotes"),
        ('requirepass "a"b', "closed quotes"),
        ("rename-command DEBUG no", "keep their names"),
        ("maxmemory 1xb", "units"),
        ("port 7999\0", "NUL"),
        ('requirepass "a\\x00b"', "NUL"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as info:
        load(conf(tmp_path, f"hz 10\n{line}\n"))
    assert "line 2" in str(info.value)


def test_the_syntax_is_guessed_without_an_extension(tmp_path: Path) -> None:
    for text, port in (("port 5\nbind 127.0.0.1\n", 5), ("# x\nport = 6\n", 6)):
        path = tmp_path / "tuquerc"
        path.write_text(text)
        assert load(str(path)).port == port
    assert looks_like_toml("") and not looks_like_toml('requirepass "a=b"')


def test_maxmemory_zero_is_unlimited(tmp_path: Path) -> None:
    assert load(conf(tmp_path, "maxmemory 0\n")).maxmemory == 0


@given(st.text())
def test_no_line_raises_anything_but_value_error(line: str) -> None:
    with contextlib.suppress(ValueError):
        split_line(line)


@given(st.text())
def test_no_file_raises_anything_but_config_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigError):
        load(str(path))


@pytest.mark.parametrize("text", ["\0" * 100, "port 1\n\0", "''"])
def test_a_line_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the name of an option in each line"):
        read_directives(text, "disque.conf", Path())
