"""What tests know of how the code is compiled: by mypyc, or to bytecode that is kept."""

from __future__ import annotations

import tuque.core.model.job

# For programs whose files may not grow: Python would keep its bytecode cut off at that size, and
# no other program could import it.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
IS_COMPILED = not (tuque.core.model.job.__file__ or "").endswith(".py")


def thorough(count: int) -> int:
    """So many examples compiled, a third of them on the sources."""
    return count if IS_COMPILED else count // 3
