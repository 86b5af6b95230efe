"""Starts the writer of event segments, without what pyarrow would import for others.

To check a list, pyarrow imports numpy and pandas where they are installed: 50 MB, and two
thirds of the time that the writer needs to start. It does without both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

UNUSED: Final = {"numpy", "pandas"}


class Without(MetaPathFinder):
    """Hides installed modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Fail for the hidden ones; leave the others to the next finder. Raises ImportError."""
        if fullname in UNUSED:
            raise ModuleNotFoundError(f"{fullname} is not used here", name=fullname)
        return None


def main() -> int:
    """Run the writer; its exit status."""
    sys.meta_path.insert(0, Without())
    from tuque.server.events.writer import main as write

    return write()


if __name__ == "__main__":
    sys.exit(main())
