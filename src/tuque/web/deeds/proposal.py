"""What a dialog says before a deed: how many jobs, what becomes of them, what cannot be undone."""

from __future__ import annotations

from typing import Final

import msgspec

TYPED_FROM: Final = 1_000  # deleting more jobs wants a name typed
SLACK: Final = 0.01  # a count that changed by more is asked again


class Refused(Exception):
    """A deed that is not done, and why, for people."""


class NotYet(Refused):
    """What the deed is about is still being read: the dialog asks again by itself."""


class Field(msgspec.Struct, frozen=True):
    """Something to fill in."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"  # text, number, area, select
    choices: tuple[str, ...] = ()
    hint: str = ""


class Proposal(msgspec.Struct):
    """A deed as the dialog asks for it; `count` None: it is about no number of jobs."""

    name: str
    title: str
    button: str
    what: str
    about: str
    follows: list[str]
    hidden: list[tuple[str, str]] = []
    fields: list[Field] = []
    count: int | None = None
    warning: str = ""
    is_danger: bool = False
    typed: str = ""
    changed: str = ""

    def is_as_said(self, said: str) -> bool:
        """Whether the count is still that which the dialog said."""
        if self.count is None:
            return True
        return said.isdigit() and abs(int(said) - self.count) <= SLACK * self.count


class Outcome(msgspec.Struct, frozen=True):
    """What came of a deed, and the address to go on with."""

    note: str
    goto: str
    jobs: int | None = None
    about: str = ""  # what the log says that it was about, where the dialog could not know it
    is_long: bool = False  # it goes on, and is logged when it has ended
