"""A pool of child processes: it kills a job over its time limit, and replaces a child that dies.

Children are spawned, never forked from a process with threads, and talk msgpack over a socket pair.
They run child.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from tuque.errors import ConfigError
from tuque.logtext import facts
from tuque.worker.app.decisions import Backoff, Outcome
from tuque.worker.pools.child import HEADER, frame, halt
from tuque.worker.pools.execute import Call, Control, over_limit_text, to_pipe
from tuque.worker.pools.pools import PAUSES, OnEnd, Running, Slow, log_endless, log_unbegun
from tuque.worker.pools.processes import end_group, ending, is_over, signals_blocked
from tuque.worker.pools.systems import has_room

log: Final = logging.getLogger("tuque.worker")

START_LIMIT_S: Final = 60.0
LEAVE_LIMIT_S: Final = 1.0
NO_CHILD_S: Final = 5.0  # that a run waits for a child
# children find the same modules as this process, whatever its path
BOOT: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tuque.worker.pools.child import main; main(sys.argv[2:])"
)
RESTART: Final = Backoff(first_s=0.2, max_s=10.0)

_outcome_decoder: Final = msgspec.msgpack.Decoder(Outcome)


class Child:
    """One child process and the socket to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer
        self.has_room = True  # below --max-memory, when it had had no job
        self.leave_s = LEAVE_LIMIT_S
        self._calls = 0
        self._kill: asyncio.TimerHandle | None = None
        self._soft: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self, request: bytes, call: Call) -> None:
        """Sends a call, which its control may cancel in any thread."""
        self._calls += 1
        loop, number = asyncio.get_running_loop(), self._calls
        self.writer.write(request)
        control: Control = call.control
        control.on_cancel(lambda: loop.call_soon_threadsafe(self._halt, number, call))
        if call.soft_limit_s is not None:
            self._soft = loop.call_later(call.soft_limit_s, self._warn, number)

    def _halt(self, number: int, call: Call) -> None:
        """[U2] Has the task raise Cancelled, and kills the child if it goes on (U2.21)."""
        if number == self._calls and self._kill is None and not self.writer.is_closing():
            self.writer.write(frame(halt(number, call.control.why, call.control.is_late)))
            loop = asyncio.get_running_loop()
            self._kill = loop.call_later(call.cancel_grace_s, self.process.kill)

    def _warn(self, number: int) -> None:
        """[U2] Has the task raise TimeLimit: it is over its soft limit (U2.27)."""
        if not self.writer.is_closing():
            self.writer.write(frame(halt(number, "", True)))

    def ended(self, control: Control) -> None:
        """The call has ended: nothing cancels it any more."""
        control.forget()
        self._calls += 1  # a late cancel stops no later call
        for alarm in self._kill, self._soft:
            if alarm is not None:
                alarm.cancel()
        self._kill = self._soft = None

    async def answer(self) -> Outcome:
        """The next outcome; IncompleteReadError or OSError if the child is gone."""
        (length,) = HEADER.unpack(await self.reader.readexactly(HEADER.size))
        return _outcome_decoder.decode(await self.reader.readexactly(length))

    async def end(self) -> int:
        """Kills the child if it is alive; returns its exit code, negative for a signal."""
        self.writer.close()
        end_group(self.pid)
        self.process.kill()  # no effect if it has ended already
        return await asyncio.to_thread(self.process.wait)

    async def leave(self) -> int:
        """Lets an idle child exit by itself, when its socket closes."""
        self.writer.close()
        try:
            code = await asyncio.to_thread(self.process.wait, self.leave_s)
        except subprocess.TimeoutExpired:
            if self.leave_s != LEAVE_LIMIT_S:  # it has lifespans, and one blocks
                log_endless(self.pid, self.leave_s)
            return await self.end()
        end_group(self.pid)
        return code


class NotAlive(ConfigError):
    """A child has loaded the app, and one of its lifespans failed."""


class ProcessPool:
    """As many child processes as concurrent jobs."""

    def __init__(
        self,
        target: str,
        app_dir: str,
        url: str | None,
        concurrency: int,
        max_memory_mb: int | None = None,
        log_kind: str = "text",
        keys: str | None = None,
    ) -> None:
        """A child with more than `max_memory_mb` is replaced after its job."""
        self._max_memory_mb = max_memory_mb
        self._log_kind = log_kind
        self._keys = keys or ""  # a file
        self._target = target
        self._app_dir = app_dir
        self._url = url or ""
        self._concurrency = concurrency
        self._idle: asyncio.Queue[Child] = asyncio.Queue()
        self._children: set[Child] = set()
        self._able: set[Child] = set()  # that have loaded the app and entered its lifespans
        self._restarts: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[int]] = set()
        self._rng = random.Random()
        self._running = Running(lambda: self.on_ready())
        self._stopping = False
        self._is_first = True  # no child has had a job
        self._guarded = self._guarding = -1  # a pipe, whose end shows guards that this one ended
        self.on_ready: Callable[[], None] = lambda: None

    @property
    def places(self) -> int:
        return len(self._able)

    @property
    def pids(self) -> list[int]:
        return sorted(child.pid for child in self._children)

    async def start(self) -> None:
        """Returns when all have loaded the app; their lifespans begin in the background."""
        spawned = await asyncio.gather(
            *(self._spawn() for _ in range(self._concurrency)), return_exceptions=True
        )
        self._is_first = False
        for failure in spawned:
            if isinstance(failure, BaseException):
                await self.stop()
                if isinstance(failure, OSError):
                    raise ConfigError(f"cannot start child processes: {failure}") from failure
                raise failure
        for child in spawned:
            if child in self._able:
                self._idle.put_nowait(child)
            elif isinstance(child, Child):
                self._start_another(child)

    def start_later(self) -> None:
        """Starts the children in the background, retrying for ever; see `on_ready`."""
        self._is_first = False
        for _ in range(self._concurrency):
            self._start_another()

    @property
    def is_ready(self) -> bool:
        """Whether a child is idle."""
        return not self._idle.empty()

    def submit(self, call: Call, on_end: OnEnd) -> None:
        self._running.submit(self._run(call), call, on_end)

    async def drop(self) -> None:
        await self._running.drop()

    async def _run(self, call: Call) -> Outcome:
        """Runs one job to its end in an idle child."""
        request = frame(to_pipe(call))  # this may raise: take a child afterwards
        child = await self._next_idle()
        if child is None:
            return Outcome("retry", "no process is ready to run it", delay_s=NO_CHILD_S)
        alarm: asyncio.TimerHandle | None = None
        if call.time_limit_s is not None:
            loop, why = asyncio.get_running_loop(), over_limit_text(call.time_limit_s)
            alarm = loop.call_later(call.time_limit_s, call.control.cancel, why, True)
        try:
            child.begin(request, call)
            await child.writer.drain()
            outcome = await child.answer()
            while outcome.kind == "progress":
                if call.control.send_progress is not None and outcome.result is not None:
                    call.control.send_progress(outcome.result)
                outcome = await child.answer()
        except (asyncio.IncompleteReadError, OSError):
            code = await self._replace(child)
            control: Control = call.control
            if control.is_cancelled:
                return control.judge(Outcome("cancelled", control.why))
            return Outcome("crashed", f"its process {ending(code)}")
        except asyncio.CancelledError:
            await self._discard(child)
            raise
        except Exception:  # its reply was unreadable
            await self._replace(child)
            raise
        finally:
            child.ended(call.control)
            if alarm is not None:
                alarm.cancel()
        if child.has_room and is_over(self._max_memory_mb, child.pid):  # U4.2
            self._retire(child)
        else:
            self._idle.put_nowait(child)
        return outcome

    async def _next_idle(self) -> Child | None:
        """A child that lives; None if there is none, as while the lifespans of others fail."""
        while True:
            try:
                async with asyncio.timeout(NO_CHILD_S):
                    child = await self._idle.get()
            except TimeoutError:
                return None
            if child.process.poll() is None:
                return child
            await self._replace(child)  # it ended while it had nothing to do

    async def stop(self) -> bool:
        self._stopping = True
        entering = len(self._children - self._able)
        if entering:
            log_unbegun(entering)
        for restart in list(self._restarts):
            restart.cancel()
        await asyncio.gather(*self._restarts, return_exceptions=True)
        idle = [self._idle.get_nowait() for _ in range(self._idle.qsize())]
        busy = self._children.difference(idle)
        self._children.clear()
        await asyncio.gather(*(child.leave() for child in idle), *(child.end() for child in busy))
        await asyncio.gather(*self._leaving)
        if self._guarded >= 0:
            os.close(self._guarded)
            os.close(self._guarding)
            self._guarded = self._guarding = -1
        return True

    async def _spawn(self) -> Child:
        """Starts a child and waits until it has loaded the app; ConfigError if it cannot.

        It is able to run jobs unless it has lifespans, which begin.
        """
        ours, theirs = socket.socketpair()
        try:
            process = self._popen(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(frame(self._url.encode()))  # other users can read arguments
        child = Child(process, reader, writer)
        self._children.add(child)
        try:
            async with asyncio.timeout(START_LIMIT_S):
                loaded = await self._answer(child, "loaded the app")
        except TimeoutError:
            raise ConfigError(
                f"a child process had not loaded the app after {START_LIMIT_S:.0f} s"
            ) from None
        if loaded.kind not in ("done", "progress"):
            await self._discard(child)
            raise ConfigError(f"a child process could not load the app: {loaded.text}")
        child.has_room = has_room(self._max_memory_mb, self._is_first, child.pid)
        if loaded.kind == "done":
            self._able.add(child)
        return child

    async def _enter(self, child: Child) -> None:
        """[U3] Waits until its lifespans have begun; NotAlive if one fails (U3.9)."""
        if child in self._able:
            return
        slow = Slow(child.pid)
        slow.begins()
        try:
            entered = await self._answer(child, "entered its lifespans")
        finally:
            slow.ends()
        if entered.kind != "done":
            await self._discard(child)
            raise NotAlive(f"a lifespan failed, so no job is taken: {entered.text}")
        if child.has_room:
            child.has_room = has_room(self._max_memory_mb, False, child.pid)
        if entered.delay_s is not None:
            child.leave_s = entered.delay_s
        self._able.add(child)

    async def _answer(self, child: Child, doing: str) -> Outcome:
        """What a child says before it has a job; ConfigError if it ends. Cancelled, it is ended."""
        try:
            return await child.answer()
        except (asyncio.IncompleteReadError, OSError):
            code = await self._discard(child)
            raise ConfigError(f"a child process {ending(code)} while it {doing}") from None
        except asyncio.CancelledError:
            await self._discard(child)
            raise

    def _popen(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        """A process that leads a group, with its end of the socket."""
        if self._guarded < 0:
            self._guarded, self._guarding = os.pipe()
        with signals_blocked():
            return subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    BOOT,
                    json.dumps(sys.path),
                    self._target,
                    self._app_dir,
                    str(theirs.fileno()),
                    str(self._guarded),
                    self._log_kind,
                    str(logging.root.level),
                    self._keys,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), self._guarded),
                process_group=0,  # which ends with it (U13.4)
            )

    async def _discard(self, child: Child) -> int:
        self._children.discard(child)
        self._able.discard(child)
        return await child.end()

    async def _replace(self, child: Child) -> int:
        """Ends a child and starts another in the background; returns the old one's exit code."""
        pid = child.pid
        code = await self._discard(child)
        if not self._stopping:
            log.warning(
                "child process %(child)d %(reason)s; another one is started",
                facts("child_ended", child=pid, reason=ending(code)),
            )
            self._start_another()
        return code

    def _retire(self, child: Child) -> None:
        """Lets a child leave that has too much memory, and starts another."""
        log.warning(
            "child process %(child)d has more than %(max_mb)d MB; another one is started",
            facts("child_too_big", child=child.pid, max_mb=self._max_memory_mb),
        )
        self._children.discard(child)
        self._able.discard(child)
        leaving = asyncio.create_task(child.leave())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        if not self._stopping:
            self._start_another()

    def _start_another(self, child: Child | None = None) -> None:
        restart = asyncio.create_task(self._restart(child))
        self._restarts.add(restart)
        restart.add_done_callback(self._restarts.discard)

    async def _restart(self, child: Child | None) -> None:
        """Starts a child, unless that one has begun, retrying for ever."""
        failures = 0
        while True:
            try:
                child = await self._spawn() if child is None else child
                await self._enter(child)
            except (ConfigError, OSError) as err:
                child = None
                failures += 1
                pauses = PAUSES if isinstance(err, NotAlive) else RESTART
                wait_s = pauses.delay_s(failures, self._rng)
                log.error(
                    "%(reason)s; next try in %(next_s).1f s",
                    facts("child_not_started", reason=err, next_s=wait_s),
                )
                await asyncio.sleep(wait_s)
                continue
            log.info("child process %(child)d is ready", facts("child_ready", child=child.pid))
            self._idle.put_nowait(child)
            self.on_ready()
            return
