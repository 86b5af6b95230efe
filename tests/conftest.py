"""For all tests: the helpers of tests/support, and how hypothesis searches."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

# A loaded machine is no fault of the code: no deadlines. The same examples in every run.
settings.register_profile(
    "tuque", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tuque")
