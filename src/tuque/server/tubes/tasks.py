"""Operations of producers and workers on tasks, for both doors (SPEC T5, T15, I6)."""

from typing import Final

from mypy_extensions import i64

from tuque.server.tubes.call import TubeCall
from tuque.server.tubes.chores import DROP, KICK, RELEASE_ALL, TRUNCATE, Tasks, TubeChore
from tuque.tubes.model.errors import LEAVING, TubeError
from tuque.tubes.model.options import PutSpec
from tuque.tubes.tasks import operations

FEW_KICKED: Final = 999  # so many may run beside calls that wait for copies (T15.11)
PLAIN: Final = PutSpec()  # no options


def put(call: TubeCall) -> None:
    """[T5] Put a task; if the tube is full and there is a timeout, wait for room (T7)."""
    spec = call.put_spec() if call.given > 0 else PLAIN
    waits = spec.timeout_ms > 0
    if waits:
        call.may_wait()
    task = operations.put(
        call.n, call.t, call.at, call.body, call.form, spec, call.client, call.serial()
    )
    if task is not None:
        call.task(task)
    elif waits:
        call.await_room()
    else:
        call.no_task(is_full=True)


def take(call: TubeCall) -> None:
    """[T5] Take a task; if there is none and there is a timeout, wait."""
    if call.is_unread():
        return
    task = operations.take(call.n, call.t, call.at, call.client)
    if task is not None:
        call.task(task)
    elif call.timeout_ms == 0:
        call.no_task()
    elif call.n.is_leaving:
        raise TubeError(LEAVING)  # T15.6, I7.6
    else:
        call.may_wait()
        call.await_task(i64(0) if call.timeout_ms < 0 else call.n.now_ms + call.timeout_ms)


def ack(call: TubeCall) -> None:
    """[T5] End the task."""
    call.task(operations.ack(call.n, call.t, call.at, call.client, call.number, call.token))


def release(call: TubeCall) -> None:
    """[T5] Make the task READY or DELAYED."""
    delay_ms: i64 = call.options.delay_ms if call.options.delay_ms > 0 else 0
    call.task(
        operations.release(call.n, call.t, call.at, call.client, call.number, delay_ms, call.token)
    )


def touch(call: TubeCall) -> None:
    """[T5] Extend the task's times; an increment of 0 changes nothing."""
    more_ms: i64 = call.timeout_ms if call.timeout_ms > 0 else 0
    task = operations.touch(call.n, call.t, call.at, call.client, call.number, more_ms, call.token)
    if task is None:
        call.no_task()
    else:
        call.task(task)


def bury(call: TubeCall) -> None:
    """[T5] Make the task BURIED."""
    call.task(operations.bury(call.n, call.t, call.at, call.number, call.token))


def peek(call: TubeCall) -> None:
    """[T5] Show the task."""
    call.task(operations.peek(call.n, call.t, call.at, call.number))


def delete(call: TubeCall) -> None:
    """[T5] Remove the task, whoever has it."""
    call.task(operations.delete(call.n, call.t, call.at, call.number))


def kick(call: TubeCall) -> None:
    """[T5] Make buried tasks READY; a count below 0 is returned unchanged."""
    if call.options.count < 0:
        call.value(int(call.options.count))
    elif call.options.count <= FEW_KICKED:
        call.value(int(operations.kick(call.n, call.t, call.at, call.options.count)))
    else:
        call.begin(TubeChore(call, KICK))


def truncate(call: TubeCall) -> None:
    """[T2] Remove all tasks."""
    call.begin(TubeChore(call, TRUNCATE))


def release_all(call: TubeCall) -> None:
    """[T2] Make all taken tasks READY."""
    call.begin(TubeChore(call, RELEASE_ALL))


def drop(call: TubeCall) -> None:
    """[T2] Remove the tube."""
    call.begin(TubeChore(call, DROP))


def tasks(call: TubeCall) -> None:
    """[T5] Tasks in a state, in the order of (pri, id)."""
    if call.options.count == 0:
        call.tasks([])
    else:
        call.begin(Tasks(call))
