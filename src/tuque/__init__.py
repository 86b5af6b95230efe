"""Tuque: a distributed job broker with Disque's queues, its client and its worker.

Public names are loaded at first use, so that importing one package does not load the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuque import aio as aio
    from tuque import errors as errors
    from tuque.client.api import Hello as Hello
    from tuque.client.api import Job as Job
    from tuque.client.api import JobInfo as JobInfo
    from tuque.client.retry import Retry as Retry
    from tuque.client.sync import Client as Client
    from tuque.client.sync import Pipeline as Pipeline
    from tuque.errors import Error as Error

__version__ = "0.3.0"

_HOMES = {
    "Client": "tuque.client.sync",
    "Error": "tuque.errors",
    "Hello": "tuque.client.api",
    "Job": "tuque.client.api",
    "JobInfo": "tuque.client.api",
    "Pipeline": "tuque.client.sync",
    "Retry": "tuque.client.retry",
}
_ROOMS = frozenset({"aio", "errors"})

__all__ = [
    "Client",
    "Error",
    "Hello",
    "Job",
    "JobInfo",
    "Pipeline",
    "Retry",
    "__version__",
    "aio",
    "errors",
]


def __getattr__(name: str) -> object:
    """Loads a public name at its first use."""
    if name in _ROOMS:
        return import_module(f"tuque.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tuque' has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
