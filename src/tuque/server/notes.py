"""The log of the server for all its modules; what repeats is said once a minute."""

import logging
from typing import Final

log: Final = logging.getLogger("tuque.server")

AGAIN_MS: Final = 60_000
TEXTS_MAX: Final = 1_000

_said: Final[dict[str, int]] = {}


def say_once(now_ms: int, text: str) -> None:
    """Write the text to the log, unless that was done less than a minute ago."""
    if now_ms < _said.get(text, 0):
        return
    if len(_said) >= TEXTS_MAX:
        _said.clear()
    _said[text] = now_ms + AGAIN_MS
    log.info("%s", text)
