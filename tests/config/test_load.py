"""Where options come from: precedence, origins, and one clear line for what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuque.server.config.config import (
    OPTIONS,
    Config,
    ConfigError,
    config_get,
    config_set,
    listen_addresses,
    load,
    print_lines,
    sample_toml,
)
from tuque.server.config.rewrite import rewritten

# `CONFIG GET *` of Disque 1.0, in its order.
DISQUE_ORDER = [
    "requirepass",
    "unixsocket",
    "logfile",
    "pidfile",
    "maxmemory",
    "maxmemory-samples",
    "timeout",
    "auto-aof-rewrite-percentage",
    "auto-aof-rewrite-min-size",
    "slowlog-log-slower-than",
    "latency-monitor-threshold",
    "slowlog-max-len",
    "port",
    "tcp-backlog",
    "databases",
    "maxclients",
    "watchdog-period",
    "hz",
    "cluster-node-timeout",
    "tcp-keepalive",
    "no-appendfsync-on-rewrite",
    "daemonize",
    "activerehashing",
    "aof-rewrite-incremental-fsync",
    "aof-load-truncated",
    "aof-enqueue-jobs-once",
    "maxmemory-policy",
    "loglevel",
    "appendfsync",
    "syslog-facility",
    "appendonly",
    "dir",
    "client-output-buffer-limit",
    "unixsocketperm",
    "bind",
]


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_command_line_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = write(tmp_path / "t.toml", "port = 1\ntimeout = 2\nmaxclients = 3\n")
    cfg = load(file, {"TUQUE__PORT": "4", "TUQUE__TIMEOUT": "5", "OTHER": "x"}, {"port": "6"})
    assert (cfg.port, cfg.timeout, cfg.maxclients, cfg.hz) == (6, 5, 3, 10)
    origins = [cfg.origin[name] for name in ("port", "timeout", "maxclients", "hz")]
    assert origins == ["command line", "TUQUE__TIMEOUT", file, "default"]


def test_print_config_is_toml_that_loads_to_the_same_values(tmp_path: Path) -> None:
    sets = {"maxmemory": "1536mb", "bind": "127.0.0.1 ::1", "logfile": 'a "b"', "events": "yes"}
    cfg = load(None, {}, sets)
    again = load(write(tmp_path / "t.toml", "\n".join(print_lines(cfg))))
    for field in OPTIONS:
        assert getattr(again, field) == getattr(cfg, field), field


def test_the_sample_uncommented_is_the_default(tmp_path: Path) -> None:
    lines = [
        line[1:] if line.startswith("#") and not line.startswith("# ") else line
        for line in sample_toml().splitlines()
    ]
    cfg = load(write(tmp_path / "t.toml", "\n".join(lines)))
    for field, opt in OPTIONS.items():
        if field != "dir":
            assert getattr(cfg, field) == opt.default, field


def test_sections_and_dots_and_dashes_name_the_same_option(tmp_path: Path) -> None:
    text = (
        '[journal]\nenabled = true\nfsync = "always"\n[events]\nenabled = true\nroll-rows = 5000\n'
    )
    cfg = load(
        write(tmp_path / "t.toml", text), {"TUQUE__EVENTS__DIR": "e"}, {"events.buffer": "4000"}
    )
    assert cfg.appendonly and cfg.appendfsync == "always"
    assert cfg.events and cfg.events_roll_rows == 5000
    assert (cfg.events_dir, cfg.events_buffer) == ("e", 4000)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("port", "65536", "0..65535"),
        ("port", "-1", "0..65535"),
        ("port", "1_0", "0..65535"),
        ("port", "", "0..65535"),
        ("maxclients", "0", "1..10000000"),
        ("cluster-node-timeout", "499", "500 or more"),
        ("maxmemory", "12q", "units"),
        ("maxmemory", "-1", "units"),
        ("maxmemory", "١", "units"),
        ("max_body_bytes", "513mb", "512..512mb"),
        ("appendfsync", "sometimes", "always | everysec | no"),
        ("appendonly", "maybe", "yes or no"),
        ("unixsocketperm", "999", "octal"),
        ("appenddirname", "../x", "without '/'"),
        ("client_output_buffer_limit", "slave 0 0 0", "normal"),
        ("client_output_buffer_limit", "normal 1 2 3", "soft limit below"),
        ("bind", "0.0.0.0", "requirepass"),
        ("logfile", "a\nb", "one line"),
        ("requirepass", "\udcff", "UTF-8"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as info:
        load(None, {}, {name: value})
    line = str(info.value)
    assert name.replace("_", "-") in line and allowed in line and line.isprintable()
    assert value in line or not value.isprintable() or value.startswith("normal")


def test_an_unknown_key_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    for load_it in (
        lambda: load(None, {}, {"max-client": "1"}),
        lambda: load(None, {"TUQUE__MAX_CLIENT": "1"}),
        lambda: load(write(tmp_path / "t.toml", "max_client = 1\n")),
    ):
        with pytest.raises(ConfigError, match="did you mean 'maxclients'"):
            load_it()


@pytest.mark.parametrize("key", ["TUQUE_PORT", "TUQUE_EVENTS_DIR", "TUQUE_JOURNAL_ENABLED"])
def test_an_option_with_one_underscore_is_refused_with_its_right_name(key: str) -> None:
    right = key.replace("TUQUE_", "TUQUE__")
    with pytest.raises(ConfigError, match=rf"unknown option '{key}'.*; write {right}, "):
        load(None, {key: "7"})


def test_other_variables_of_our_name_are_warned_of() -> None:
    """Among them what Kubernetes sets for a service that is called tuque."""
    links = {"TUQUE_PORT": "tcp://10.0.0.1:7711", "TUQUE_SERVICE_HOST": "10.0.0.1"}
    cfg = load(None, links)
    assert cfg.port == 7711
    assert [warning.split()[:2] for warning in cfg.warnings] == [[key, "ignored:"] for key in links]


def test_variables_of_other_parts_of_tuque_are_left_alone() -> None:
    source = Path(__file__).resolve().parents[2] / "src"
    text = "\n".join(path.read_text("utf-8") for path in source.rglob("*.py"))
    known = set(re.findall(r"TUQUE_[A-Z][A-Z_]*", text))
    assert {"TUQUE_URL", "TUQUE_PASSWORD"} <= known
    known -= {"TUQUE_PORT"}  # of a comment
    assert load(None, dict.fromkeys(known, "x")).warnings == []


@pytest.mark.parametrize("text", ["port = \n", "port 7711\n", "[a\n", "port = [1]\n", "bind = 5\n"])
def test_a_broken_toml_file_says_where(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"t\.toml"):
        load(write(tmp_path / "t.toml", text))


def test_a_missing_file_says_so() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load("/nonexistent/t.toml")


LONG = "a password of 24 bytes.."


def test_without_a_password_only_loopback() -> None:
    assert listen_addresses(load()) == ["127.0.0.1", "::1"]
    assert listen_addresses(load(None, {}, {"requirepass": LONG})) == ["0.0.0.0", "::"]
    assert listen_addresses(load(None, {}, {"protected-mode": "no"})) == ["0.0.0.0", "::"]
    assert listen_addresses(load(None, {}, {"bind": "*", "requirepass": LONG})) == ["0.0.0.0", "::"]


def test_a_short_password_opens_nothing() -> None:
    """C1.4: a password of fewer than 16 bytes does not open the node to other machines either"""
    short = load(None, {}, {"requirepass": "x" * 15})
    assert listen_addresses(short) == ["127.0.0.1", "::1"]
    assert "requirepass is short, listening on loopback only" in short.warnings[0]
    for weak in ("x" * 100, "password" * 2):
        assert listen_addresses(load(None, {}, {"requirepass": weak})) == ["127.0.0.1", "::1"]
    assert load(None, {}, {"requirepass": LONG[:16]}).warnings == []
    assert load(None, {}, {"requirepass": "x", "bind": "127.0.0.1"}).warnings == []
    with pytest.raises(ConfigError) as info:
        load(None, {}, {"requirepass": "x", "bind": "127.0.0.1 0.0.0.0"})
    assert str(info.value) == (
        "requirepass: '********' is not allowed (from command line); allowed: at least 16 bytes, "
        "without those that repeat, where other machines can connect; make one with "
        "`openssl rand -base64 24`, or bind loopback addresses only, or set protected-mode no"
    )
    load(None, {}, {"requirepass": "x", "bind": "0.0.0.0", "protected-mode": "no"})


def test_config_set_takes_no_short_password_on_an_open_node() -> None:
    """C1.4 on a node that is already open CONFIG SET refuses such a password."""
    cfg = load(None, {}, {"bind": "0.0.0.0", "requirepass": LONG})
    with pytest.raises(ConfigError) as info:
        config_set(cfg, "requirepass", "short")
    assert info.value.reply.startswith("ERR CONFIG SET requirepass: at least 16 bytes, without")
    assert "short" not in info.value.reply
    assert cfg.requirepass == LONG
    closed = load()
    config_set(closed, "requirepass", "short")
    assert closed.requirepass == "short"


def test_config_get_has_disques_order_then_ours() -> None:
    names = [name for name, _ in config_get(load(), "*")]
    assert names[: len(DISQUE_ORDER)] == DISQUE_ORDER
    assert "protected-mode" in names and "appendfilename" not in names
    assert [name for name, _ in config_get(load(), "SLOW*")] == [
        "slowlog-log-slower-than",
        "slowlog-max-len",
    ]
    assert config_get(load(), "por[^u]") == [("port", "7711")]
    assert config_get(load(), "nothing") == []


def test_config_get_never_shows_the_password() -> None:
    cfg = load(None, {}, {"requirepass": "hush"})
    assert "hush" not in str(config_get(cfg, "*")) and "hush" not in str(print_lines(cfg))


def test_config_set_changes_what_may_change() -> None:
    cfg = load()
    for name, value in (("maxmemory", "2gb"), ("HZ", "100000"), ("tcp-keepalive", "no")):
        config_set(cfg, name, value)
    assert (cfg.maxmemory, cfg.hz, cfg.tcp_keepalive) == (2 << 30, 500, 0)
    assert dict(config_get(cfg, "tcp-keepalive")) == {"tcp-keepalive": "0"}
    assert cfg.origin["maxmemory"] == "CONFIG SET"


@pytest.mark.parametrize(
    ("name", "value", "reply"),
    [
        ("port", "1", "ERR Unsupported CONFIG parameter: port"),
        ("dir", "/", "ERR Unsupported CONFIG parameter: dir"),
        ("logfile", "/x", "ERR Unsupported CONFIG parameter: logfile"),
        ("nope", "1", "ERR Unsupported CONFIG parameter: nope"),
        ("appendfilename", "x", "ERR Unsupported CONFIG parameter: appendfilename"),
        (
            "maxclients",
            "0",
            "ERR Invalid argument '0' for CONFIG SET 'maxclients'; allowed: 1..10000000",
        ),
        (
            "cluster-node-timeout",
            "50",
            "ERR Invalid argument '50' for CONFIG SET 'cluster-node-timeout'; allowed: 500 or more",
        ),
    ],
)
def test_config_set_refuses_and_changes_nothing(name: str, value: str, reply: str) -> None:
    cfg = load()
    before = config_get(cfg, "*")
    with pytest.raises(ConfigError) as info:
        config_set(cfg, name, value)
    assert info.value.reply == reply
    assert config_get(cfg, "*") == before


def test_config_set_cannot_open_the_node_to_all() -> None:
    for bind in ("0.0.0.0", ""):  # empty: all, because a password was set
        cfg = load(None, {}, {"bind": bind, "requirepass": LONG})
        with pytest.raises(ConfigError):
            config_set(cfg, "requirepass", "")
        assert cfg.requirepass == LONG
    cfg = load()
    config_set(cfg, "requirepass", "x")
    config_set(cfg, "requirepass", "")


def test_every_option_says_what_it_is() -> None:
    for field, opt in OPTIONS.items():
        assert opt.help and len(opt.help) < 120, field
        shown = opt.kind.show(opt.default)
        if field != "requirepass":
            assert opt.kind.parse(shown) == opt.default, field
    assert set(OPTIONS) == set(Config.__struct_fields__) - {
        "origin",
        "warnings",
        "is_any_port",
        "config_file",
        "read_files",
        "config_syntax",
        "is_open",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("port = " + "1" * 5_000, "a number is too long"),
        ("port = 0x" + "f" * 5_000, "a number is too long"),
        ("port = " + "[" * 5_000, "nested too deeply"),
        (".".join("a" * 5_000) + " = 1", "nested too deeply"),
    ],
)
def test_toml_that_python_cannot_take(tmp_path: Path, text: str, why: str) -> None:
    """An error of one line, as for any other file, also in CONFIG REWRITE."""
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load(str(path))
    assert rewritten(load(sets={"port": "7712"}), text).endswith("\nport = 7712\n")


def test_a_long_value_is_not_repeated() -> None:
    """C10.4 It shows at most 256 characters of an option's value, as CONFIG SET does."""
    with pytest.raises(ConfigError) as failed:
        load(sets={"port": "x" * 100_000})
    assert "x... (100000 characters)" in str(failed.value) and len(str(failed.value)) < 500
