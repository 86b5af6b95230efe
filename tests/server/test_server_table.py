"""Every row of the command table can be called, and says so when it is called wrongly."""

from __future__ import annotations

import pytest

from tuque.server.admin.registry import COMMANDS
from tuque.wire.commands.rows import COMMAND_ROWS
from world import World

RUN_BY_DISPATCH = {"addjob", "getjob", "ackjob", "fastack", "deljob"}


def test_every_row_of_the_table_has_a_handler() -> None:
    names = {row.name.lower() for row in COMMAND_ROWS}
    assert set(COMMANDS) | RUN_BY_DISPATCH == names
    assert not set(COMMANDS) & RUN_BY_DISPATCH


@pytest.mark.parametrize("name", [row.name for row in COMMAND_ROWS if abs(row.arity) > 1])
def test_too_few_arguments(world: World, name: str) -> None:
    wrong = b"-ERR wrong number of arguments for '%s' command\r\n" % name.lower().encode()
    assert world(name.title()) == wrong


def test_unknown_command(world: World) -> None:
    assert world("FooBar x") == b"-ERR unknown command 'FooBar'\r\n"
    assert world("", b"a\r\nb") == b"-ERR unknown command 'a  b'\r\n"


def test_rows_of_command(world: World) -> None:
    show = b"*7\r\n$4\r\nshow\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:0\r\n:0\r\n:0\r\n"
    show += b"*1\r\n+@inspect\r\n"
    assert world("COMMAND INFO show nosuch") == b"*2\r\n" + show + b"$-1\r\n"
    assert world("COMMAND INFO") == b"*0\r\n"
    assert world("COMMAND COUNT") == b":%d\r\n" % len(COMMAND_ROWS)
    assert len(world.value("COMMAND")) == len(COMMAND_ROWS)
    assert b"addjob" in world.value("COMMAND LIST")
    assert world("COMMAND GETKEYS x") == b"-ERR The command has no key arguments\r\n"
    wrong = b"-ERR Unknown subcommand or wrong number of arguments.\r\n"
    assert world("COMMAND nosuch") == wrong
    assert world("COMMAND COUNT 1") == wrong


def test_docs_of_a_command(world: World) -> None:
    name, fields = world.value("COMMAND DOCS QLEN nosuch")
    assert name == b"qlen"
    docs = dict(zip(fields[::2], fields[1::2], strict=True))
    assert docs[b"group"] == b"queues"
    assert docs[b"arguments"][0][1] == b"queue"
    assert len(world.value("COMMAND DOCS")) == 2 * len(COMMAND_ROWS)


def test_docs_are_a_map_in_resp3(world: World) -> None:
    world("HELLO 3")
    assert world("COMMAND DOCS qlen").startswith(b"%1\r\n$4\r\nqlen\r\n%")
    assert world("COMMAND INFO nosuch") == b"*1\r\n_\r\n"


@pytest.mark.parametrize("name", ["CLIENT", "CLUSTER", "CONFIG", "DEBUG", "SLOWLOG", "LATENCY"])
def test_help_names_the_subcommands(world: World, name: str) -> None:
    lines = world.value(f"{name} HELP")
    assert len(lines) >= 4
    assert all(name.encode() in line for line in lines)
