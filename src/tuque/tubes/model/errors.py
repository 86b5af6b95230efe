"""Refusals of tubes: exceptions with a code of core/model/errors.py, and its arguments."""

from mypy_extensions import i64

from tuque.core.model.errors import MOVED


class TubeError(Exception):
    """A refusal; nothing was done. `about` has the arguments of its text, in order."""

    def __init__(self, code: i64, about: tuple[object, ...] = ()) -> None:
        super().__init__(code, about)
        self.code = code
        self.about = about


class HomeError(TubeError):
    """Another node leads the tube; the shell adds the address (T17.3, T17.4)."""

    def __init__(self, tube: bytes, node_id: bytes) -> None:
        super().__init__(MOVED, (tube,))
        self.tube = tube
        self.node_id = node_id


def shown(name: bytes) -> str:
    """A name for the log: one line, whatever its bytes are."""
    text = name.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])
