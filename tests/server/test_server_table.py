"""Every row of the command table can be called, and says so when it is called wrongly."""

from __future__ import annotations

import pytest
from door import Door

from tuque.server.admin.registry import COMMANDS
from tuque.wire.commands.commands import ROWS

RUN_BY_DISPATCH = {"addjob", "getjob", "ackjob", "fastack", "deljob"}


def test_every_row_of_the_table_has_a_handler() -> None:
    names = {row[0].lower() for row in ROWS}
    assert set(COMMANDS) | RUN_BY_DISPATCH == names
    assert not set(COMMANDS) & RUN_BY_DISPATCH


@pytest.mark.parametrize("name", [row[0] for row in ROWS if abs(row[1]) > 1])
def test_too_few_arguments(door: Door, name: str) -> None:
    wrong = b"-ERR wrong number of arguments for '%s' command\r\n" % name.lower().encode()
    assert door(name.title()) == wrong


def test_unknown_command(door: Door) -> None:
    assert door("FooBar x") == b"-ERR unknown command 'FooBar'\r\n"
    assert door("", b"a\r\nb") == b"-ERR unknown command 'a  b'\r\n"


def test_rows_of_command(door: Door) -> None:
    show = b"*7\r\n$4\r\nshow\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:0\r\n:0\r\n:0\r\n"
    show += b"*1\r\n+@inspect\r\n"
    assert door("COMMAND INFO show nosuch") == b"*2\r\n" + show + b"$-1\r\n"
    assert door("COMMAND INFO") == b"*0\r\n"
    assert door("COMMAND COUNT") == b":%d\r\n" % len(ROWS)
    assert len(door.value("COMMAND")) == len(ROWS)
    assert b"addjob" in door.value("COMMAND LIST")
    assert door("COMMAND GETKEYS x") == b"-ERR The command has no key arguments\r\n"
    wrong = b"-ERR Unknown subcommand or wrong number of arguments.\r\n"
    assert door("COMMAND nosuch") == wrong
    assert door("COMMAND COUNT 1") == wrong


def test_docs_of_a_command(door: Door) -> None:
    name, fields = door.value("COMMAND DOCS QLEN nosuch")
    assert name == b"qlen"
    docs = dict(zip(fields[::2], fields[1::2], strict=True))
    assert docs[b"group"] == b"queues"
    assert docs[b"arguments"][0][1] == b"queue"
    assert len(door.value("COMMAND DOCS")) == 2 * len(ROWS)


def test_docs_are_a_map_in_resp3(door: Door) -> None:
    door("HELLO 3")
    assert door("COMMAND DOCS qlen").startswith(b"%1\r\n$4\r\nqlen\r\n%")
    assert door("COMMAND INFO nosuch") == b"*1\r\n_\r\n"


@pytest.mark.parametrize("name", ["CLIENT", "CLUSTER", "CONFIG", "DEBUG", "SLOWLOG", "LATENCY"])
def test_help_names_the_subcommands(door: Door, name: str) -> None:
    lines = door.value(f"{name} HELP")
    assert len(lines) >= 4
    assert all(name.encode() in line for line in lines)
