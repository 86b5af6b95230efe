"""`tuque tubes`, and help for TUBE."""

from __future__ import annotations

import json

from console_node import Run, free_port


def test_a_node_without_tubes_then_with_some(port: int, tuque: Run) -> None:
    done = tuque("tubes", "-p", port)
    assert done.stdout == b"no tubes; `tuque cli TUBE CREATE name type` makes one\n"
    for words in (
        "CREATE urls utubettl TTR 30",
        "CREATE small limfifottl TEMPORARY CAPACITY 2",
        "PUT urls a UTUBE x",
        "PUT urls b DELAY 60",
        "TAKE urls",
    ):
        assert tuque("cli", "-p", port, "TUBE", *words.split()).returncode == 0
    done = tuque("tubes", "-p", port)
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert lines[0][:4] == ["TUBE", "TYPE", "READY", "TAKEN"]
    small = ["small", "limfifottl", "(temporary,", "capacity", "2)"]
    assert lines[1] == [*small, "0", "0", "0", "0", "0", "0", "-", "-"]
    assert lines[2] == ["urls", "utubettl", "1", "0", "1", "0", "0", "0", "-", "30", "s"]
    rows = json.loads(tuque("tubes", "-p", port, "--json").stdout)
    assert [(row["name"], row["delayed"]) for row in rows] == [("small", 0), ("urls", 1)]


def test_a_node_that_is_not_there(tuque: Run) -> None:
    done = tuque("tubes", "-p", free_port())
    assert done.returncode == 1
    assert b"Error: " in done.stderr


def test_what_to_do_about_errors(port: int, tuque: Run) -> None:
    done = tuque("cli", "-p", port, "TUBE", "PUT", "urls")
    assert b"hint: usage: TUBE PUT tube body [PRI n]" in done.stderr
    done = tuque("cli", "-p", port, "TUBE", "NIX")
    assert b"hint: `help TUBE` shows its subcommands" in done.stderr
    done = tuque("cli", "-p", port, "TUBE", "TAKE", "nowhere")
    assert b"hint: `TUBE LIST` shows" in done.stderr
