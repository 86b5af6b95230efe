"""Types of tubes and callbacks that installed packages bring (SPEC T3.5-T3.7, T16.4).

They are found by their names as entry points; nothing that comes over a connection is ever run,
imported or looked up as anything but such a name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final, cast

from tuque.server.notes import log
from tuque.server.tube_notices import Callback
from tuque.tubes.book import BUILT_IN, Tubes
from tuque.tubes.drivers import register_driver
from tuque.tubes.errors import LUA, NO_DRIVER, TubeError
from tuque.tubes.hooks import tubes_of

if TYPE_CHECKING:
    from tuque.server.state import Server
    from tuque.tubes.driver import Driver

DRIVERS: Final = "tuque.tube_drivers"
CALLBACKS: Final = "tuque.tube_callbacks"
NO_LOAD: Final = "the %s '%s' cannot be loaded: %s"

# [T3.7] where a type stands
IS_BUILT_IN: Final = "built-in"
IS_LOADED: Final = "loaded"
IS_INSTALLED: Final = "installed"  # to be registered
IS_MISSING: Final = "missing"  # tubes of it wait


def load_plugins(s: Server) -> None:
    """[T3] All types and callbacks, at the start; one that is no good is left out and logged."""
    for entry in entry_points(group=DRIVERS):
        try:
            load_driver(s, entry)
        except TubeError as error:
            log.error("%s %s: %s", DRIVERS, entry.name, error.text.decode())
    for entry in entry_points(group=CALLBACKS):
        try:
            callback = loaded(entry)
        except TubeError as error:
            log.error("%s %s: %s", CALLBACKS, entry.name, error.text.decode())
            continue
        s.notices.callbacks[entry.name.encode()] = cast(Callback, callback)


def load_driver(s: Server, entry: EntryPoint) -> None:
    """Register the type that the entry point names. Raises TubeError."""
    name = entry.name.encode()
    factory = cast("Callable[[], Driver]", loaded(entry))
    try:
        register_driver(s.n, tubes_of(s.n), name, factory)
    except (TubeError, AssertionError):
        raise
    except Exception as error:
        raise not_loaded(entry, error) from error
    s.notices.origins[name] = origin(entry)


def loaded(entry: EntryPoint) -> object:
    """What the entry point names. Raises TubeError when it cannot be had, or cannot be called."""
    try:
        found: object = entry.load()
    except Exception as error:
        raise not_loaded(entry, error) from error
    if not callable(found):
        raise not_loaded(entry, TypeError("it is nothing to call"))
    return found


def not_loaded(entry: EntryPoint, error: Exception) -> TubeError:
    """The error for the caller; the log has the whole of it."""
    log.error("cannot load %s %s", entry.group, entry.name, exc_info=error)
    what = "driver" if entry.group == DRIVERS else "callback"
    shown = f"{type(error).__name__}: {error}".replace("\r", " ").replace("\n", " ")
    return TubeError(LUA, (NO_LOAD % (what, entry.name, shown)).encode("utf-8", "backslashreplace"))


def origin(entry: EntryPoint) -> str:
    """Where a type comes from, for people: module, class and package."""
    package = "" if entry.dist is None else f" ({entry.dist.name} {entry.dist.version})"
    return entry.value + package


def register_installed(s: Server, name: bytes) -> None:
    """[T3] ON register_driver: a type that was installed after the start (T3.6). TubeError."""
    importlib.invalidate_caches()
    for entry in entry_points(group=DRIVERS):
        if entry.name.encode() == name:
            load_driver(s, entry)
            log.info("tubes may have the type %s now: %s", entry.name, origin(entry))
            return
    if name in tubes_of(s.n).drivers:
        register_driver(s.n, tubes_of(s.n), name, nothing)  # it says why not
    raise TubeError(LUA, NO_DRIVER % name)


def nothing() -> Driver:
    """No driver is made of it."""
    raise AssertionError("a type that is there was registered again")


def listing(s: Server, t: Tubes) -> list[list[object]]:
    """[T3] Each type with where it stands, where it comes from, and how many tubes have it."""
    counts: dict[bytes, int] = {}
    for tube in t.by_name.values():
        counts[tube.type] = counts.get(tube.type, 0) + 1
    rows: list[list[object]] = []
    seen: set[bytes] = set()
    for name in t.drivers:
        word = IS_BUILT_IN if name in BUILT_IN else IS_LOADED
        rows.append([name, word, s.notices.origins.get(name, ""), counts.get(name, 0)])
        seen.add(name)
    for entry in entry_points(group=DRIVERS):
        name = entry.name.encode()
        if name not in seen:
            rows.append([name, IS_INSTALLED, origin(entry), counts.get(name, 0)])
            seen.add(name)
    rows += [[name, IS_MISSING, "", count] for name, count in counts.items() if name not in seen]
    return rows
