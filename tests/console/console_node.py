"""How the console's tests run the program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

DEADLINE_S = 60.0
Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
