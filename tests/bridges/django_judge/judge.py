"""Runs Django's own tests of tasks, from its released sources, with the backend of Tuque.

    python judge.py FOLDER

FOLDER has `tests/tasks` of Django. Prints how many ran, which were left out and why; fails if a
test fails, or if fewer than 90 % ran.
"""

from __future__ import annotations

import re
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LEAST: Final = 0.9
BASE: Final = "from django.tasks.backends.base import BaseTaskBackend"
REPLACED: Final = (
    (r"from django\.tasks\.backends\.dummy import DummyBackend",
     "from judged import Waiting as DummyBackend"),
    (r"from django\.tasks\.backends\.immediate import ImmediateBackend",
     "from judged import AtOnce as ImmediateBackend"),
    (r"django\.tasks\.backends\.dummy\.DummyBackend", "judged.Waiting"),
    (r"django\.tasks\.backends\.immediate\.ImmediateBackend", "judged.AtOnce"),
    (re.escape(BASE), "from tuque.django import TuqueBackend as BaseTaskBackend"),
)  # fmt: skip
BACKPORT: Final = (
    (r"django\.tasks\b", "django_tasks"),
    (r"async Tasks\.", "async tasks."),
    (r"\bInvalidTask\b", "InvalidTaskError"),
    (r"\bInvalidTaskBackend\b", "InvalidTaskBackendError"),
    (r"from django_tasks import Task, ",
     "from django_tasks.base import Task\nfrom django_tasks import "),
)  # fmt: skip

# Names of tests, without what is before the class: why each is left out.
LEFT_OUT: Final = {
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "ends a process, not enqueue",
    "ImmediateBackendTestCase.test_cannot_get_result": "asserts that a backend cannot",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "asserts that a backend cannot",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "asserts that a backend cannot",
    "DummyBackendTestCase.test_refresh_result": "writes into DummyBackend.results",
    "DummyBackendTestCase.test_refresh_result_async": "writes into DummyBackend.results",
    "CustomBackendTestCase.test_no_enqueue": "asserts that a backend has no enqueue",
}  # fmt: skip


def copied(source: Path, to: Path, is_backport: bool) -> None:
    """The tests, with our backend in the place of Django's."""
    (to / "tasks").mkdir()
    for path in source.glob("*.py"):
        text = path.read_text()
        for pattern, new in REPLACED:
            text = re.sub(pattern, new, text)
        for pattern, new in BACKPORT if is_backport else ():
            text = re.sub(pattern, new, text)
        (to / "tasks" / path.name).write_text(text)


def each(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """All tests of a suite."""
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from each(one)
        else:
            yield one


def name_of(test: unittest.TestCase) -> str:
    return ".".join(test.id().split(".")[-2:])


def main(folder: str) -> int:
    """The exit code."""
    import django
    from django.conf import settings

    is_backport = django.VERSION < (6, 0)
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["tuque.django", *(["django_tasks"] if is_backport else [])],
        USE_TZ=True,
        SECRET_KEY="of no use",
    )
    django.setup()
    with tempfile.TemporaryDirectory() as place:
        copied(Path(folder) / "tests" / "tasks", Path(place), is_backport)
        sys.path[:0] = [place, str(Path(__file__).parent)]
        import judged

        judged.begin()
        found = list(each(unittest.defaultTestLoader.discover(place, top_level_dir=place)))
        kept = [test for test in found if name_of(test) not in LEFT_OUT]
        result = unittest.TextTestRunner(verbosity=0).run(unittest.TestSuite(kept))
        judged.BROKERS[0].close()
    ran = len(kept) - len(result.skipped)
    print(f"Django {django.__version__}: {ran} of {len(found)} tests ran")
    for test in sorted({name_of(test) for test in found} & set(LEFT_OUT)):
        print(f"  left out: {test}: {LEFT_OUT[test]}")
    return 0 if result.wasSuccessful() and ran >= LEAST * len(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
