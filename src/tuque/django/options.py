"""`OPTIONS` of a backend in TASKS: what they may be, and which app of tasks they name.

An error says what to change, and where.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured

from tuque.client.url import parse
from tuque.errors import ConfigError
from tuque.worker.app.app import DEFAULT_URL, URL_VARIABLE, App, load_app
from tuque.worker.app.options import TaskOptions, check_names

ALIASES: Final = "TUQUE_DJANGO_ALIASES"  # of a worker: backends with commas between; empty: all
KEEP_S: Final = 86_400.0
# what a task of Django says by words of its own, or what its queue cannot keep
NOT_HERE: Final = (
    "queue",
    "delay_s",
    "pri",
    "codec",
    "headers",
    "utube",
    "key",
    "key_ttl_s",
    "keep_body",
)
OF_TASKS: Final = tuple(name for name in TaskOptions.__annotations__ if name not in NOT_HERE)

_apps: dict[str, App] = {}  # by URL: backends of one broker are served by one worker


@dataclass(frozen=True)
class Settings:
    """The options of one backend; each is checked by `read`.

    `url` is the broker, by default TUQUE_URL. `app`, "shop.jobs:app", is an App with tasks of its
    own, which the same worker runs, and has the broker. `prefix` goes before the names of all
    queues. Results are kept for `keep_s`. `attempts` is that of tasks without their own. With
    `exact_priorities` the queues are tubes, whose order holds over all nodes. With `on_commit` what
    a transaction of the default database enqueues is added at its commit. `tasks` has options of
    tasks by their paths. `console` is the address of the console, for links.
    """

    url: str = ""
    app: str = ""
    prefix: str = ""
    keep_s: float = KEEP_S
    attempts: int = 1
    exact_priorities: bool = False
    on_commit: bool = False
    tasks: dict[str, TaskOptions] = field(default_factory=dict)
    console: str = ""

    def broker(self) -> str:
        """The URL, which may come from the environment; empty without one.

        With DEBUG it is the node that `tuque dev` starts here.
        """
        here = DEFAULT_URL if project.DEBUG else ""
        return self.url or os.environ.get(URL_VARIABLE) or here

    def of_task(self, path: str) -> TaskOptions:
        """The options of the task of that path."""
        own: TaskOptions = {"attempts": self.attempts, "keep_s": self.keep_s, "keep_body": True}
        return {**own, **self.tasks.get(path, {})}


TYPES: Final[dict[str, tuple[type, ...]]] = {
    "url": (str,),
    "app": (str,),
    "prefix": (str,),
    "keep_s": (int, float),
    "attempts": (int,),
    "exact_priorities": (bool,),
    "on_commit": (bool,),
    "tasks": (dict,),
    "console": (str,),
}


def problems(alias: str, options: dict[str, Any]) -> list[tuple[str, str]]:
    """What is wrong with the options of a backend: an id of a check, and a sentence each."""
    where = f"TASKS[{alias!r}]['OPTIONS']"
    found: list[tuple[str, str]] = []
    for name, value in options.items():
        kinds = TYPES.get(name)
        if kinds is None:
            near = difflib.get_close_matches(str(name), TYPES, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(TYPES)}"
            found.append(("E002", f"{where} has no option {name!r}: {meant}"))
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            found.append(("E003", f"{where}[{name!r}] is {names}, not {value!r}"))
    if found:
        return found
    return [("E003", f"{where}{text}") for text in _wrong_values(Settings(**options))]


def _wrong_values(settings: Settings) -> list[str]:
    """What is wrong with options of the right types."""
    found: list[str] = []
    if settings.url and settings.app:
        found.append(": give url or app: an app has its own broker")
    if settings.url:
        try:
            parse(settings.url)
        except ConfigError as err:
            found.append(f"['url']: {err}")
    if settings.keep_s < 0:
        found.append(f"['keep_s'] is 0 seconds or more, not {settings.keep_s}")
    if settings.attempts < 1:
        found.append(f"['attempts'] is 1 or more, not {settings.attempts}")
    for path, options in settings.tasks.items():
        found += [f"['tasks'][{path!r}]: {text}" for text in _wrong_task(options)]
    return found


def _wrong_task(options: object) -> list[str]:
    """What is wrong with the options of one task."""
    if not isinstance(options, dict):
        return [f"options are a dict, not {options!r}"]
    for name in NOT_HERE:
        if name in options:
            return [f"{name!r} is not for tasks of Django; there are {', '.join(OF_TASKS)}"]
    try:
        check_names(options)
    except TypeError as err:
        return [str(err)]
    return []


def read(alias: str, options: dict[str, Any]) -> Settings:
    """The options of a backend; ImproperlyConfigured for the first that is wrong."""
    found = problems(alias, options)
    if found:
        raise ImproperlyConfigured(found[0][1])
    return Settings(**options)


def app_of(alias: str, settings: Settings) -> App:
    """The app that has the tasks of a backend; ImproperlyConfigured without a broker."""
    if settings.app:
        try:
            return load_app(settings.app)
        except ConfigError as err:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS']['app']: {err}") from err
    url = settings.broker()
    if not url:
        raise ImproperlyConfigured(no_url(alias))
    if url not in _apps:
        _apps[url] = App(url)
    return _apps[url]


def no_url(alias: str) -> str:
    """That a backend has no broker, and what to change."""
    return (
        f"TASKS[{alias!r}] names no broker: add "
        f"'OPTIONS': {{'url': 'tuque://127.0.0.1:7711'}}, or set {URL_VARIABLE}"
    )
