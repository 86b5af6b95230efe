"""What an import brings: a program that adds jobs pays for it at each start.

Modules are counted, not seconds: a count is the same on each machine. The figures have room for one
or two more; whoever needs more looks first at what brings them.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

REQUIRED = "import msgspec, hiredis, click"  # msgspec alone brings 63, uuid and inspect among them
HEAVY = {
    "asyncio",
    "ssl",
    "uuid",
    "inspect",
    "subprocess",
    "concurrent.futures",
    "tempfile",
    "json",
}


def brought(code: str) -> set[str]:
    """The modules that are loaded then, and were not at the start."""
    told = f"import sys; had = set(sys.modules); {code}; print(*(set(sys.modules) - had))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", told], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def required() -> set[str]:
    return brought(REQUIRED)


def test_the_package_alone_brings_nothing() -> None:
    assert brought("import tuque") == {"tuque"}


@pytest.mark.parametrize(
    ("code", "ours", "others"),
    [
        ("import tuque.errors", 2, 0),
        ("from tuque import Client", 34, 24),
        ("import tuque.aio", 36, 74),
        ("from tuque.worker import App", 57, 87),
        ("import tuque.main", 4, 8),
    ],
)
def test_an_import_brings_few_modules(
    code: str, ours: int, others: int, required: set[str]
) -> None:
    """`others` are those that no required package brings."""
    found = brought(code)
    own = {name for name in found if name.partition(".")[0] == "tuque"}
    rest = found - own - required
    assert (len(own) <= ours, len(rest) <= others) == (True, True), (len(own), sorted(rest))


# What msgspec imports if another package has brought it, and `inspect` with it.
ALONE = "sys.modules['typing_extensions'] = None; "


def test_a_client_for_threads_brings_no_event_loop_and_no_tls() -> None:
    found = brought(f"{ALONE}from tuque import Client") - brought(f"{ALONE}import msgspec, hiredis")
    assert not found & HEAVY


def test_client_and_worker_are_there_without_the_flag_that_macos_lacks() -> None:
    code = "import select; del select.POLLRDHUP; import tuque.aio; from tuque.worker import App"
    assert {"tuque.worker", "tuque.client.aio"} <= brought(code)
