"""The rules of commands belong to commands of the table (wire/commands/details.py)."""

from __future__ import annotations

import re

from tuque.wire.commands.details import ALL_DETAILS
from tuque.wire.commands.rows import ROWS


def test_each_key_is_a_command_or_subcommand_of_the_table() -> None:
    names = {row.name.encode() for row in ROWS}
    assert {key for key, _ in ALL_DETAILS} <= names


def test_each_text_begins_with_a_step() -> None:
    assert all(re.match(r"\n?- [A-Z]\d+\.\d+ ", text) for _, text in ALL_DETAILS)
