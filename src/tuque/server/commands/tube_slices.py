"""TRUNCATE, RELEASEALL, DROP, KICK and TASKS of large tubes, one slice per turn (SPEC L2).

TRUNCATE, RELEASEALL and DROP visit the tasks present at the start: a task put later is not
truncated.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.task import TAKEN, Task
from tuque.core.model.timers import REPLY_BYTES
from tuque.core.queues.procedures import mark_ready
from tuque.server.replies.tubes import OK, TubeCall
from tuque.server.state.client import Chore
from tuque.tubes.log.leader import needs_copies, needs_home
from tuque.tubes.model import options
from tuque.tubes.model.errors import NO_TUBE, TubeError
from tuque.tubes.tasks import admin, operations
from tuque.tubes.types.ordering import key_of
from tuque.tubes.work.transitions import admit, end, give_back

TRUNCATE: Final = 0
RELEASE_ALL: Final = 1
DROP: Final = 2
KICK: Final = 3
LOOKS: Final = 4  # tasks, or tubes, visited per unit of work


@final
class TubeChore(Chore):
    """A command that changes many tasks of a tube."""

    def __init__(self, call: TubeCall, what: i64) -> None:
        super().__init__(call.caller)
        self.call = call
        self.n = call.n
        self.t = call.t
        self.tube = call.at
        self.what = what
        self.count = call.options.count  # for KICK: how many
        self.numbers: list[int] = []
        self.at: i64 = -1  # -1: not started
        self.done: i64 = 0
        self.goes_on = True

    def step(self, room: i64) -> bool:
        """Apply the command to the next tasks."""
        n = self.n
        tube = self.tube
        if self.t.by_name.get(tube.name) is not tube:
            raise TubeError(NO_TUBE)
        if self.what == KICK:
            return self.kick(room)
        if self.at < 0:
            self.begin()
        try:
            needs_copies(n, self.t, tube)
        except TubeError:
            self.undo()
            raise
        end: i64 = min(len(self.numbers), self.at + room)
        n.work += end - self.at
        while self.at < end:
            task = tube.tasks.get(self.numbers[self.at])
            if task is not None:
                self.change(task)
            self.at += 1
        if self.at < len(self.numbers):
            return False
        if self.what == DROP:
            admin.remove_tube(n, self.t, tube)
        return True

    def begin(self) -> None:
        """List the present tasks; DROP also stops puts and takes."""
        tube = self.tube
        if self.what == DROP:
            admin.may_drop(self.n, self.t, tube)
            tube.drops += 1  # T2.8
        elif self.what == RELEASE_ALL:
            operations.settle(self.n, self.t)
        if self.what != RELEASE_ALL or tube.taken > 0:
            self.numbers = list(tube.tasks)
        self.at = 0

    def undo(self) -> None:
        """DROP was aborted: allow puts and takes again."""
        if self.what == DROP:
            self.tube.drops -= 1
            admit(self.n, self.t, self.tube)
            if len(self.tube.waiters) > 0:
                mark_ready(self.n, self.tube)

    def change(self, task: Task) -> None:
        """Apply the command to one task."""
        n, t, tube = self.n, self.t, self.tube
        if self.what == RELEASE_ALL:
            if task.status == TAKEN:
                give_back(n, t, tube, task)
                self.done += 1
            return
        tube.calls.truncated += 1
        if n.events is not None:
            n.events.deleted(n.now_ms, task, stats.ADMIN_DELETED)
        end(n, t, tube, task, stats.ADMIN_DELETED, options.TRUNCATE)
        self.done += 1

    def kick(self, room: i64) -> bool:
        """Kick the next buried tasks."""
        wanted: i64 = min(self.count - self.done, room)
        done = operations.kick(self.n, self.t, self.tube, wanted)
        self.n.work += done
        self.done += done
        return done < wanted or self.done >= self.count

    def tell(self) -> None:
        """Reply with the count, or OK."""
        if self.what == DROP:
            self.call.value(OK)
        else:
            self.call.value(int(self.done))


@final
class Tasks(Chore):
    """TASKS: the first tasks in a state, in the order of (pri, number)."""

    def __init__(self, call: TubeCall) -> None:
        super().__init__(call.caller)
        self.call = call
        self.n = call.n
        self.t = call.t
        self.tube = call.at
        self.status = call.options.status
        self.most = call.options.count
        self.numbers: list[int] = []
        self.at: i64 = -1  # -1: not started
        self.found: list[Task] = []

    def step(self, room: i64) -> bool:
        """Check the next tasks; keep the first of those in the state."""
        tube = self.tube
        needs_home(self.n, self.t, tube)
        if self.at < 0:
            self.at = 0
            if admin.has_status(tube, self.status):
                self.numbers = list(tube.tasks)
        end: i64 = min(len(self.numbers), self.at + room * LOOKS)
        self.n.work += (end - self.at) // LOOKS
        found = self.found
        while self.at < end:
            task = tube.tasks.get(self.numbers[self.at])
            self.at += 1
            if task is not None and task.status == self.status:
                found.append(task)
        if len(found) > 2 * self.most:  # sorted once for many slices
            found.sort(key=key_of)
            del found[self.most :]
        return self.at == len(self.numbers)

    def result(self) -> list[Task]:
        """The tasks still in that state, up to the size of one reply (L2.5)."""
        self.found.sort(key=key_of)
        del self.found[self.most :]
        self.n.work += len(self.found)
        rows: list[Task] = []
        size: i64 = 0
        for task in self.found:
            if size > REPLY_BYTES:
                break
            if task.status == self.status:
                rows.append(task)
                size += len(task.body)
        return rows

    def tell(self) -> None:
        """Reply with the tasks."""
        self.call.tasks(self.result())
