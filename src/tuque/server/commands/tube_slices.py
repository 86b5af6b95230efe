"""TRUNCATE, RELEASEALL, DROP, KICK and TASKS of large tubes, one slice per turn (SPEC L2).

TRUNCATE, RELEASEALL and DROP visit the tasks present at the start: a task put later is not
truncated.
"""

from typing import Final, final

from mypy_extensions import i64

from tuque.core.model import stats
from tuque.core.model.errors import NO_TUBE
from tuque.core.model.task import READY, TAKEN, Task
from tuque.core.model.timers import REPLY_BYTES
from tuque.core.queues.procedures import mark_ready
from tuque.server.replies.tubes import OK, TubeCall
from tuque.server.state.client import LongCommand
from tuque.tubes.leadership.catalog_in import drop_nowhere
from tuque.tubes.log.leader import needs_copies, needs_home
from tuque.tubes.model import options
from tuque.tubes.model.errors import TubeError
from tuque.tubes.model.tube import Tube
from tuque.tubes.tasks import admin, operations
from tuque.tubes.types.driver import Firsts, key_of
from tuque.tubes.work.transitions import admit, end, give_back

TRUNCATE: Final = 0
RELEASE_ALL: Final = 1
DROP: Final = 2
KICK: Final = 3
LOOKS: Final = 4  # tasks, or tubes, visited per unit of work
CHANGED: Final = 3  # units more for a task that is ended or given back
COPIED: Final = 100  # numbers of tasks that are copied per unit of work
WRITTEN: Final = 4  # units of work to write a task
MERGED: Final = 16  # keys that are merged per unit of work


@final
class TubeChore(LongCommand):
    """A command that changes many tasks of a tube."""

    def __init__(self, call: TubeCall, what: i64) -> None:
        super().__init__(call.caller)
        self.call = call
        self.n = call.n
        self.t = call.t
        self.tube = call.at
        self.what = what
        self.count = call.options.count  # for KICK: how many
        self.tasks: list[Task] = []  # also those that ended: they are freed in slices
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
        if self.what == DROP and drop_nowhere(n, self.t, tube):
            return True
        if self.at < 0:
            self.begin()
        try:
            if self.what == DROP:
                admin.may_drop(n, self.t, tube)  # T18.5 is not about DROP
            else:
                needs_copies(n, self.t, tube)
        except TubeError:
            self.undo()
            raise
        left = room
        size: i64 = len(self.tasks)
        while self.at < size and left > 0:
            task = self.tasks[self.at]
            left -= 1
            if tube.tasks.get(task.number) is task and self.change(task):
                left -= CHANGED
            self.at += 1
        n.work += room - left
        return self.at == size and left > 0 and self.free(left)

    def free(self, room: i64) -> bool:
        """Let go of tasks that ended, for so many units; True: of all, and the tube is dropped."""
        end: i64 = len(self.tasks)
        begin: i64 = max(0, end - room * LOOKS)
        del self.tasks[begin:]
        self.n.work += (end - begin) // LOOKS
        if begin > 0:
            self.at = begin
            return False
        if self.what == DROP:
            admin.remove_tube(self.n, self.t, self.tube)
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
            self.tasks = list(tube.tasks.values())
        self.at = 0

    def undo(self) -> None:
        """DROP was aborted: allow puts and takes again."""
        if self.what == DROP:
            self.tube.drops -= 1
            admit(self.n, self.t, self.tube)
            if len(self.tube.waiters) > 0:
                mark_ready(self.n, self.tube)

    def change(self, task: Task) -> bool:
        """Apply the command to one task; False: it does not concern it."""
        n, t, tube = self.n, self.t, self.tube
        if self.what == RELEASE_ALL:
            if task.status != TAKEN:
                return False
            give_back(n, t, tube, task)
            self.done += 1
            return True
        tube.calls.truncated += 1
        if n.events is not None:
            n.events.deleted(n.now_ms, task, stats.ADMIN_DELETED, n.returned(task.id))
        end(n, t, tube, task, stats.ADMIN_DELETED, options.TRUNCATE)
        self.done += 1
        return True

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
class Walk:
    """The tasks of a tube in a state, the first `most` in the order of (pri, number), in slices.

    It begins with the numbers of all tasks: those that come later are not among them.
    """

    def __init__(self, tube: Tube, status: i64, most: i64, is_last: bool = False) -> None:
        self.tube = tube
        self.status = status
        self.numbers = list(tube.tasks)
        self.at: i64 = 0
        self.firsts = Firsts(most, is_last)
        self.work: i64 = len(self.numbers) // COPIED  # units that the last slice cost

    def step(self, room: i64) -> bool:
        """Look at the next tasks, for so many units; True: all were looked at."""
        tasks, firsts = self.tube.tasks, self.firsts
        size: i64 = len(self.numbers)
        left = room * LOOKS
        while self.at < size and left > 0:
            task = tasks.get(self.numbers[self.at])
            self.at += 1
            left -= 1
            if task is not None and task.status == self.status and firsts.add(task):
                left -= firsts.merge() * LOOKS // MERGED
        is_done = self.at == size
        if is_done:
            left -= firsts.merge() * LOOKS // MERGED
        self.work += room - left // LOOKS
        return is_done

    def found(self) -> list[Task]:
        """The tasks found that are still in that state, in order."""
        found: list[Task] = []
        is_moved = False
        for pri, number in self.firsts.keys:
            task = self.tube.tasks.get(number)
            if task is not None and task.status == self.status:
                found.append(task)
                is_moved = is_moved or task.pri != pri
        if is_moved:  # UPDATEJOB gave it a new pri meanwhile
            found.sort(key=key_of, reverse=self.firsts.is_last)
        return found


@final
class Tasks(LongCommand):
    """TASKS: the first tasks in a state, in the order of (pri, number)."""

    def __init__(self, call: TubeCall) -> None:
        super().__init__(call.caller)
        self.call = call
        self.n = call.n
        self.t = call.t
        self.tube = call.at
        self.status = call.options.status
        self.most = call.options.count
        self.walk: Walk | None = None
        self.found: list[Task] | None = None  # None: not known yet
        self.at: i64 = 0  # the next of them to write
        self.parts: list[bytes] = []  # as written
        self.rows: i64 = 0
        self.size: i64 = 0  # of the bodies

    def step(self, room: i64) -> bool:
        """Find the tasks, then write them."""
        needs_home(self.n, self.t, self.tube)
        found = self.found
        if found is None:
            before = self.n.work
            found = self.found = self.find(room)
            room -= self.n.work - before
            if found is None or (room <= 0 and len(found) > 0):
                return False
        begin = self.at
        end: i64 = min(len(found), begin + room // WRITTEN + 1)
        while self.at < end and self.size <= REPLY_BYTES:  # L2.5
            task = found[self.at]
            self.at += 1
            if task.status == self.status:
                self.call.write(self.parts, task)
                self.rows += 1
                self.size += len(task.body)
        self.n.work += WRITTEN * (self.at - begin)
        return self.at == len(found) or self.size > REPLY_BYTES

    def find(self, room: i64) -> list[Task] | None:
        """The tasks in that state, or None until all were looked at.

        The first ones that are READY are found in the orders of the tube, if they are few.
        """
        tube = self.tube
        walk = self.walk
        if walk is None:
            if not admin.has_status(tube, self.status):
                return []
            if self.status == READY and self.most <= room:
                tasks, looked = tube.first_tasks(self.most, room * LOOKS)
                self.n.work += looked // LOOKS
                if tasks is not None:
                    return tasks
            walk = self.walk = Walk(tube, self.status, self.most)
        is_done = walk.step(room)
        self.n.work += walk.work
        walk.work = 0
        if not is_done:
            return None
        found = walk.found()
        self.n.work += len(found) // LOOKS
        return found

    def tell(self) -> None:
        """Reply with the tasks."""
        self.call.written(self.rows, self.parts)
