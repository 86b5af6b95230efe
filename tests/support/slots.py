"""Runs tests in several processes, forked from the one that has collected them: `--slots 4`.

A plugin of pytest. To import and collect all tests takes seconds of CPU, and here it is done once,
whatever the number of processes. Each takes whole files, since a module shares its nodes, in the
order in which they were collected. What they report reaches the plugins of the first process.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterable
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

LEAVE_S: Final = 20.0  # to end nodes and a session of Spark
NEXT: Final = "next"  # a process has run its share

number = -1  # of this process; -1: it runs no share
ended_with: list[int] = []  # the exit code, if there were other processes


@cache
def share_of(path: Path) -> str:
    """The file; those that use the Spark session of tests/spark/conftest.py are one share."""
    return "spark" if "spark: SparkSession" in path.read_text() else str(path)


def shares_of(items: list[pytest.Item]) -> deque[list[int]]:
    """The tests of each share, by their places among all."""
    found: dict[str, list[int]] = {}
    for at, item in enumerate(items):
        found.setdefault(share_of(item.path), []).append(at)
    return deque(found.values())


# ---- In the process that has collected


class Slot:
    """A forked process, as seen from the first one."""

    def __init__(self, session: pytest.Session, number: int, others: Iterable[Slot]) -> None:
        self.number = number
        self.share: deque[int] = deque()  # without a report yet
        self.line, its = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            for one in (self, *others):
                one.line.close()
            Worker(session, number, its).run()
        its.close()

    def give(self, share: list[int] | None) -> None:
        """More tests, or the word that there are none."""
        self.share.extend(share or ())
        with contextlib.suppress(OSError):  # it has died: its line says so as well
            self.line.send(share)

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        self.line.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Slots:
    """All of them."""

    def __init__(self, session: pytest.Session, many: int) -> None:
        self.session = session
        self.config = session.config
        self.left = shares_of(session.items)
        self.running: dict[Connection, Slot] = {}
        base_of(self.config)  # made before there are others
        for number in range(min(many, len(self.left))):
            self.start(number, self.left.popleft())

    def start(self, number: int, share: list[int]) -> None:
        slot = Slot(self.session, number, self.running.values())
        self.running[slot.line] = slot
        slot.give(share)

    def run(self) -> None:
        """Until all tests have run."""
        try:
            while self.running:
                for line in wait(list(self.running)):
                    assert isinstance(line, Connection)
                    self.hear(self.running[line])
        finally:
            self.stop()

    def hear(self, slot: Slot) -> None:
        said: Any = None
        with contextlib.suppress(EOFError, ConnectionError):
            said = slot.line.recv()
        if said is None:
            self.bury(slot)
        elif said == NEXT:
            more = not (self.session.shouldfail or self.session.shouldstop) and self.left
            slot.give(self.left.popleft() if more else None)
        elif isinstance(said, dict):
            self.config.hook.pytest_warning_recorded.call_historic(kwargs=warned(said))
        else:
            self.report(slot, [read(self.config, one) for one in said])

    def report(self, slot: Slot, reports: list[Any]) -> None:
        """A test has run, or what all tests of the process shared has ended."""
        hook = self.config.hook
        if slot.share:
            slot.share.popleft()
            of = {"nodeid": reports[0].nodeid, "location": reports[0].location}
            hook.pytest_runtest_logstart(**of)
            for one in reports:
                hook.pytest_runtest_logreport(report=one)
            hook.pytest_runtest_logfinish(**of)
        else:
            for one in reports:
                hook.pytest_runtest_logreport(report=one)
        if self.session.shouldfail:
            self.left.clear()
            for one in self.running.values():
                one.give(None)

    def bury(self, slot: Slot) -> None:
        """It has ended; if a test was running, that has failed, and another process goes on."""
        del self.running[slot.line]
        code = slot.ended()
        if slot.share and (code or not self.session.shouldfail):
            item = self.session.items[slot.share[0]]
            said = f"its process ended with {code}"
            made = (item.nodeid, item.location, {}, "failed", said, "call")
            self.report(slot, [pytest.TestReport(*made)])
            if slot.share and not self.session.shouldfail:
                self.start(slot.number, list(slot.share))
        elif code:
            raise RuntimeError(f"a process of tests ended with {code}")

    def stop(self) -> None:
        """End those that still run, as SIGINT ends a run of tests; what does not end is killed."""
        for slot in self.running.values():
            os.kill(slot.pid, signal.SIGINT)
        deadline_s = time.monotonic() + LEAVE_S
        for slot in self.running.values():
            while os.waitid(os.P_PID, slot.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() > deadline_s:
                    os.kill(slot.pid, signal.SIGKILL)
                time.sleep(0.01)
            slot.ended()
        self.running.clear()


def read(config: pytest.Config, data: Any) -> Any:
    """A report that was sent."""
    if isinstance(data, pytest.TestReport):
        return data
    return config.hook.pytest_report_from_serializable(config=config, data=data)


def warned(said: dict[str, Any]) -> dict[str, Any]:
    """What the hook for warnings gets."""
    message = warnings.WarningMessage(
        UserWarning(said["text"]), UserWarning, said["file"], said["line"]
    )
    return {
        "warning_message": message,
        "when": said["when"],
        "nodeid": said["nodeid"],
        "location": None,
    }


# ---- In a process that was forked


class Onward:
    """The test after the last one of a share, for pytest: it ends all but the session."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session

    def listchain(self) -> list[Any]:
        return [self.session]


class Worker:
    """Runs shares; a plugin that hears the reports of this process."""

    def __init__(self, session: pytest.Session, own: int, line: Connection) -> None:
        self.session = session
        self.config = session.config
        self.number = own
        self.line = line
        self.reports: list[Any] = []
        self.last: pytest.Item | None = None
        self.is_begun = False  # hooks are told of what was before

    def run(self) -> NoReturn:
        """All that this process does."""
        code = 3
        try:
            self.begin()
            try:
                self.run_shares()
            finally:
                self.leave()
            code = 0
        except (KeyboardInterrupt, EOFError, ConnectionError):
            code = 2  # the first process ends the run, or is gone
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # what else ends with a process is the first one's

    def begin(self) -> None:
        """Takes apart what forks share: files for output, the directory, the terminal."""
        global number
        number = self.number
        capture: Any = self.config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        reporter: Any = self.config.pluginmanager.getplugin("terminalreporter")
        reporter._tw._file = io.StringIO()  # its lines are the first process's
        made = base_of(self.config) / f"slot{self.number}"
        made.mkdir(exist_ok=True)
        factory_of(self.config)._basetemp = made
        self.config.pluginmanager.register(self)
        self.is_begun = True

    def run_shares(self) -> None:
        items = self.session.items
        while (share := self.line.recv()) is not None:
            for at, after in zip(share, [*share[1:], None], strict=True):
                self.last = item = items[at]
                following: Any = Onward(self.session) if after is None else items[after]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                self.tell()
                if self.session.shouldfail or self.line.poll():
                    return  # no more is to run
            self.line.send(NEXT)

    def leave(self) -> None:
        """Ends what all tests of this process shared."""
        if self.last is not None:
            end: Any = self.session._setupstate.teardown_exact
            call = pytest.CallInfo.from_call(lambda: end(None), when="teardown")
            hook = self.last.ihook
            hook.pytest_runtest_logreport(
                report=hook.pytest_runtest_makereport(item=self.last, call=call)
            )
            self.tell()

    def tell(self) -> None:
        reports, self.reports = self.reports, []
        self.line.send(reports)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and not report.sections:
            self.reports.append(report)
        else:
            hook = self.config.hook
            self.reports.append(
                hook.pytest_report_to_serializable(config=self.config, report=report)
            )

    @pytest.hookimpl
    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        if self.is_begun:
            text = f"{warning_message.category.__name__}: {warning_message.message}"
            place = {"file": warning_message.filename, "line": warning_message.lineno}
            self.line.send({"text": text, **place, "when": when, "nodeid": nodeid})


# ---- The plugin


def factory_of(config: Any) -> Any:
    """What makes directories for tests."""
    return config._tmp_path_factory


def base_of(config: pytest.Config) -> Path:
    """The directory below which a process makes those of its tests."""
    base: Path = factory_of(config).getbasetemp()
    return base


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of tools/run_tests.py and of the Makefile."""
    parser.addoption("--slots", type=int, default=1, help="run tests in so many processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs all tests, in the place of pytest's own loop."""
    many = session.config.option.slots
    if many < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    Slots(session, many).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


@pytest.hookimpl
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """All reports are there."""
    if session.config.option.slots > 1:
        ended_with.append(int(exitstatus))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Ends without taking the modules of all tests apart; DuckDB would list what it leaves."""
    if ended_with:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended_with[0])
