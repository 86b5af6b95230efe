"""The version of the package: read by the build, `--version`, INFO and HELLO."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
