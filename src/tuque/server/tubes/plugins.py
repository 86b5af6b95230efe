"""Types of tubes and callbacks from installed packages (SPEC T3.5-T3.7, T16.4).

They are found by their entry point names; no input of a connection is ever run, imported or looked
up as anything but such a name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final, cast

from tuque.logtext import facts
from tuque.server.log.notes import log
from tuque.server.replies.words import text_of
from tuque.server.state.tube_notices import Callback
from tuque.tubes.model.driver_guard import DriverFailed, Guarded, summary_of, why_stopped
from tuque.tubes.model.errors import NO_DRIVER, NOT_LOADED, TubeError
from tuque.tubes.model.tubes import BUILT_IN, Tubes
from tuque.tubes.policy import tubes_of
from tuque.tubes.tasks.admin import register_driver

if TYPE_CHECKING:
    from tuque.server.state.state import Server
    from tuque.tubes.types.driver import Driver

DRIVERS: Final = "tuque.tube_drivers"
CALLBACKS: Final = "tuque.tube_callbacks"

# [T3.7] states of a type
IS_BUILT_IN: Final = "built-in"
IS_LOADED: Final = "loaded"
IS_INSTALLED: Final = "installed"  # not registered yet
IS_FAILED: Final = "failed"  # failed to load
IS_MISSING: Final = "missing"  # not installed; its tubes wait


def load_plugins(s: Server) -> None:
    """[T3] Load all types and callbacks at startup; skip and log those that fail."""
    for entry in entry_points(group=DRIVERS):
        try:
            load_driver(s, entry)
        except TubeError as error:
            log.error(
                "%(group)s %(name)s: %(reason)s",
                facts(
                    "plugin_refused", group=DRIVERS, name=entry.name, reason=text_of(error).decode()
                ),
            )
    for entry in entry_points(group=CALLBACKS):
        try:
            callback = loaded(entry)
        except TubeError as error:
            log.error(
                "%(group)s %(name)s: %(reason)s",
                facts(
                    "plugin_refused",
                    group=CALLBACKS,
                    name=entry.name,
                    reason=text_of(error).decode(),
                ),
            )
            continue
        s.notices.callbacks[entry.name.encode()] = cast(Callback, callback)


def load_driver(s: Server, entry: EntryPoint) -> None:
    """Register the type of the entry point. Raises TubeError."""
    name = entry.name.encode()
    t = tubes_of(s.n)
    try:
        factory = cast("Callable[[], Driver]", loaded(entry))
        try:
            register_driver(s.n, t, name, factory)
        except DriverFailed as failed:
            raise not_loaded(entry, failed.error) from failed.error
    except TubeError as error:
        if name not in t.drivers:
            s.notices.failed[name] = text_of(error)
        raise
    s.notices.failed.pop(name, None)
    s.notices.origins[name] = origin(entry)


def loaded(entry: EntryPoint) -> object:
    """The object of the entry point. Raises TubeError if it fails to load or is not callable."""
    try:
        found: object = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: it ends no node (T3.8)
        raise not_loaded(entry, error) from error
    if not callable(found):
        raise not_loaded(entry, TypeError("it is nothing to call"))
    return found


def not_loaded(entry: EntryPoint, error: BaseException) -> TubeError:
    """The error for the caller; logs the whole of it."""
    log.error(
        "cannot load %(group)s %(name)s",
        facts("plugin_failed", group=entry.group, name=entry.name),
        exc_info=error,
    )
    what = b"driver" if entry.group == DRIVERS else b"callback"
    name = entry.name.encode("utf-8", "backslashreplace")
    return TubeError(NOT_LOADED, (what, name, summary_of(error).encode()))


def origin(entry: EntryPoint) -> str:
    """The origin of a type, for people: module, class and package."""
    package = "" if entry.dist is None else f" ({entry.dist.name} {entry.dist.version})"
    return entry.value + package


def register_installed(s: Server, name: bytes) -> None:
    """[T3] ON register_driver: load a type installed after the start (T3.6). Raises TubeError."""
    importlib.invalidate_caches()
    for entry in entry_points(group=DRIVERS):
        if entry.name.encode() == name:
            load_driver(s, entry)
            log.info(
                "registered the tube type %(type)s: %(origin)s",
                facts("tube_type_registered", type=entry.name, origin=origin(entry)),
            )
            return
    if name in tubes_of(s.n).drivers:
        register_driver(s.n, tubes_of(s.n), name, nothing)  # raises the reason
    raise TubeError(NO_DRIVER, (name,))


def nothing() -> Driver:
    """A factory that is never called."""
    raise AssertionError("a type that is there was registered again")


def listing(s: Server, t: Tubes) -> list[list[object]]:
    """[T3] Each type: state, origin, tubes, stopped tubes (T3.7)."""
    counts: dict[bytes, int] = {}
    stopped: dict[bytes, list[list[object]]] = {}
    for tube in t.by_name.values():
        counts[tube.type] = counts.get(tube.type, 0) + 1
        if isinstance(tube.driver, Guarded):
            why = why_stopped(tube.type, tube.driver)
            if why:
                stopped.setdefault(tube.type, []).append([tube.name, why])
    known: dict[bytes, tuple[str, str]] = {}
    for name in t.drivers:
        word = IS_BUILT_IN if name in BUILT_IN else IS_LOADED
        known[name] = (word, s.notices.origins.get(name, ""))
    for entry in entry_points(group=DRIVERS):
        name = entry.name.encode()
        if name not in known:
            known[name] = (IS_FAILED if name in s.notices.failed else IS_INSTALLED, origin(entry))
    for name in counts:
        known.setdefault(name, (IS_MISSING, ""))
    rows: list[list[object]] = []
    for name, (word, where) in known.items():
        why_not = s.notices.failed.get(name, b"") if word == IS_FAILED else b""
        rows.append([name, word, where, counts.get(name, 0), stopped.get(name, []), why_not])
    return rows
