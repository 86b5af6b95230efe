"""G8: the node's clock goes on while the machine is suspended, where the system has such a one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import pytest

from tuque.server.net.system import CLOCK, steady_ms

ASLEEP_S = 86_400
# Linux shows a process a clock that ran ahead by a day of sleep: boot time moves, the other not.
SLEPT = ["unshare", "-U", "-r", "-T", f"--boottime={ASLEEP_S}", "--fork"]
SHOW = "from tuque.server.net.system import steady_ms; print(steady_ms())"


def can_sleep() -> bool:
    """Whether this machine lets us make such a process."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*SLEPT, "true"], capture_output=True, check=False).returncode == 0


def test_it_goes_forward() -> None:
    before = steady_ms()
    time.sleep(0.005)
    assert 5 <= steady_ms() - before < 5000


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="no clock counts a suspend here")
def test_it_is_the_one_that_counts_a_suspend() -> None:
    assert CLOCK == time.CLOCK_BOOTTIME


@pytest.mark.skipif(not can_sleep(), reason="time namespaces are not to be had here")
def test_a_suspend_counts() -> None:
    """G8.1 the machine's steady clock [...] counts while the machine is suspended"""
    began_ms = steady_ms()
    run = subprocess.run(
        [*SLEPT, sys.executable, "-c", SHOW], capture_output=True, text=True, check=True
    )
    assert 0 <= int(run.stdout) - began_ms - ASLEEP_S * 1000 < 20_000
