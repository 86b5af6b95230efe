"""Options of a command group count before a subcommand and behind it, in every group."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from console_node import Run

from tuque.console.cluster.programs import free_port
from tuque.console.terminal.link import Link, Target
from tuque.lazygroup import NODE_WORDS, FiniteRange, OptionsAnywhere
from tuque.main import tuque as program
from tuque.nodeoptions import node_options

Path = tuple[str, ...]
EAGER = {"help", "version"}
# what a command needs beside its options, so that it asks the node and changes nothing
WORDS = {
    ("cluster", "status"): [],
    ("cluster", "meet"): ["127.0.0.1", "PORT"],
    ("cluster", "forget"): ["ffff"],
    ("cluster", "drain"): ["--cancel"],
    ("cluster", "repair"): [],
    ("tubes", "home"): ["nix"],
    ("workers", "quiet"): ["nix"],
    ("workers", "stop"): ["nix"],
}


def groups(command: click.Command, path: Path = ()) -> Iterator[tuple[Path, click.Group]]:
    """Every group of the program."""
    if isinstance(command, click.Group):
        yield path, command
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from groups(found, (*path, name))


def options(command: click.Command) -> dict[str, click.Option]:
    """Its options by name, without those that only show something."""
    found = [one for one in command.params if isinstance(one, click.Option)]
    return {str(one.name): one for one in found if one.name not in EAGER}


GROUPS = list(groups(program))
# each option of a group with each of its subcommands
PAIRS = [
    (path, sub, name)
    for path, group in GROUPS
    for name in options(group)
    for sub in group.list_commands(click.Context(group))
]


def test_all_groups_are_of_the_kind_that_passes_options_on() -> None:
    assert {path for path, _ in GROUPS} >= {(), ("cluster",), ("tubes",), ("journal",), ("spark",)}
    assert [path for path, group in GROUPS if not isinstance(group, OptionsAnywhere)] == []


@pytest.mark.parametrize(("path", "sub", "name"), PAIRS, ids=str)
def test_an_option_of_a_group_is_never_lost(path: Path, sub: str, name: str) -> None:
    """The subcommand has the same option, or it says that it does not know it."""
    group = dict(GROUPS)[path]
    command = group.get_command(click.Context(group), sub)
    assert command is not None
    option = options(group)[name]
    known = options(command).get(name)
    for word in option.opts:
        if known is not None and word in known.opts:
            assert (known.type.name, known.envvar) == (option.type.name, option.envvar)
            continue
        value = [] if option.is_flag else ["7"]
        # the last word is wrong in any case: nothing is started should the option be lost
        done = CliRunner().invoke(program, [*path, word, *value, sub, "--nothing"])
        assert done.exit_code == 2 and f"No such option '{word}'" in done.output, done.output


@pytest.mark.parametrize(("path", "sub"), sorted({(path, sub) for path, sub, _ in PAIRS}), ids=str)
def test_the_node_is_named_before_or_behind(path: Path, sub: str, port: int) -> None:
    """The same output and the same status, whether the node is there or not."""
    if (*path, sub) in (("cluster", "dev"), ("cluster", "secret")):
        return  # they ask no node
    words = [str(port) if word == "PORT" else word for word in WORDS[*path, sub]]
    nowhere = free_port()
    told = []
    for asked in (port, nowhere):
        before = said(*path, "-h", "127.0.0.1", "-p", asked, sub, *words)
        behind = said(*path, sub, *words, "-p", asked, "-h", "127.0.0.1")
        last = said(*path, "-p", 1, sub, "-p", asked, *words)
        assert columns(before) == columns(behind) == columns(last)
        told.append(before)
    assert str(nowhere) in told[1] and str(nowhere) not in told[0]


def said(*words: str | int) -> str:
    """Exit status and output of the program."""
    done = CliRunner().invoke(program, [str(word) for word in words])
    return f"{done.exit_code}\n{done.output}"


def columns(shown: str) -> list[list[str]]:
    """Lines without figures of memory and of clients, which each look changes."""
    return [line.split()[:3] for line in shown.splitlines()]


@pytest.mark.parametrize("words", [["-p", "PORT"], ["-pPORT"], ["--port=PORT", "--user", "u"]])
def test_the_node_is_named_before_all_commands(words: list[str], port: int) -> None:
    words = [word.replace("PORT", str(port)) for word in words]
    assert said(*words, "cli", "PING") == "0\nPONG\n"
    assert said("-p", 1, "cli", "-p", port, "PING") == "0\nPONG\n"
    assert said(*words, "cluster", "status").startswith("0\n")
    assert said(*words, "cluster", "-p", 1, "status").startswith("1\n")
    for dead in (["dead", *words], [*words, "dead"], ["dead", "-h", "127.0.0.1", *words]):
        assert said(*dead, "stat", "nix") == "0\n"
    assert str(free := free_port()) in said(*words, "-p", free, "triage")


def test_a_node_before_spark_is_given_to_its_command() -> None:
    for words in (["spark", "-p", "x", "backfill"], ["-p", "x", "spark", "backfill"]):
        assert "Invalid value for '-p' / '--port': 'x'" in said(*words)
    for words in (["spark", "-p", "7", "submit"], ["-p", "7", "spark", "submit", "x.py"],
                  ["spark", "--host", "a", "shell"], ["--user", "u", "journal", "check"],
                  ["--host", "a", "server"], ["dead", "-a", "x", "--nothing"]):  # fmt: skip
        assert said(*words).startswith("2\n") and "No such option '-" in said(*words)
    assert said("-h") == said("--help") == said("-h", "a", "cli")


def test_the_options_before_a_subcommand_are_those_of_a_node() -> None:
    asks = click.command()(node_options(lambda node: None))
    assert {word for one in asks.params for word in one.opts} == set(NODE_WORDS)


def test_force_reaches_the_node_that_is_named(port: int, tuque: Run) -> None:
    """Not the one on the default port."""
    link = Link(Target(port=port))
    assert link.call([b"TUBE", b"CREATE", b"f", b"fifo"]) == "OK"
    done = tuque("tubes", "-p", port, "home", "f", f"127.0.0.1:{port}", "--force")
    assert b"the leader of tube 'f' is reachable" in done.stderr
    assert link.call([b"TUBE", b"DROP", b"f"]) == "OK"
    link.close()


def commands(command: click.Command, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """Every command of the program that is no group."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def test_no_option_takes_nan_or_infinity() -> None:
    numbers = []
    for path, command in commands(program):
        for param in command.params:
            if isinstance(param.type, click.types.FloatParamType):
                assert isinstance(param.type, FiniteRange), (path, param.name)
                numbers.append((path, param.name))
                for value in ("nan", "inf", "-inf", "-1"):
                    with pytest.raises(click.BadParameter):
                        param.type.convert(value, param, None)
    assert (("cluster", "drain"), "timeout") in numbers
