"""Tuque: a distributed job broker with Disque's queues, its client and its worker.

Public names are loaded at first use, so that importing one package does not load the others.
The packages of the node are a distribution of their own, `tuque-node` (decisions/0053).
"""

import os
import sys

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than all of this module
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

__version__ = "0.4.0"  # tools/release.py sets it, here and in tuque/server

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


def _with_node(mine: list[str]) -> list[str]:
    """The folders of this package: this one, and that of the node if it is another one.

    Python finds one folder of a package. Two distributions share it, but for systems with one
    folder for compiled packages and one for others, and for users with two of their own.
    """
    if os.path.isdir(os.path.join(mine[0], "server")):
        return mine
    for root in sys.path:
        place = os.path.join(root, "tuque") if isinstance(root, str) else ""
        has_all = os.path.exists(os.path.join(place, "__init__.py"))  # a Tuque of its own
        if os.path.isdir(os.path.join(place, "server")) and not has_all:
            return [*mine, place]
    return mine


__path__ = _with_node(list(__path__))


def __getattr__(name: str) -> object:
    """Loads a public name at its first use."""
    from importlib import import_module

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
