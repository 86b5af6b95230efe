"""The worker: tasks that are enqueued like typed functions, and the program that runs them.

    from tuque.worker import App

    app = App("tuque://127.0.0.1:7711")

    @app.task(queue="mail", retry_s=60, attempts=5)
    def send(to: str, text: str) -> None: ...

    send.enqueue("you@example.org", "hello")

and then `tuque worker module:app`. Uses the client.

What runs jobs, and what makes chains and groups, is loaded at first use: a program that only
enqueues does without.

Must not know: the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tuque.worker.app.app import App, load_app
from tuque.worker.app.codec import BadBody, Envelope
from tuque.worker.app.decisions import Backoff
from tuque.worker.app.encryption import Key, Keys
from tuque.worker.app.enqueue import Call
from tuque.worker.app.handle import Handle
from tuque.worker.app.hooks import Failure, Middleware, Outgoing
from tuque.worker.app.options import Options, TaskOptions
from tuque.worker.app.policies import (
    Fair,
    Limit,
    Rate,
    Unique,
)
from tuque.worker.app.task import (
    AsyncTask,
    Reject,
    RetryLater,
    Task,
    TimeLimit,
)
from tuque.worker.app.tasks import Tasks

if TYPE_CHECKING:
    from tuque.worker.app.celery_messages import celery_task
    from tuque.worker.pools.execute import Attempt, Job, current_job
    from tuque.worker.workflow.chain import Chain, Later, chain
    from tuque.worker.workflow.chain_handle import ChainHandle, ChainProgress
    from tuque.worker.workflow.group import Called, Group, group
    from tuque.worker.workflow.group_handle import CalledHandle, GroupHandle
    from tuque.worker.workflow.results import Failed

_HOMES = {
    "Attempt": "pools.execute",
    "Called": "workflow.group",
    "CalledHandle": "workflow.group_handle",
    "Chain": "workflow.chain",
    "ChainHandle": "workflow.chain_handle",
    "ChainProgress": "workflow.chain_handle",
    "Failed": "workflow.results",
    "Group": "workflow.group",
    "GroupHandle": "workflow.group_handle",
    "Job": "pools.execute",
    "Later": "workflow.chain",
    "celery_task": "app.celery_messages",
    "chain": "workflow.chain",
    "current_job": "pools.execute",
    "group": "workflow.group",
}

__all__ = [
    "App",
    "AsyncTask",
    "Attempt",
    "Backoff",
    "BadBody",
    "Call",
    "Called",
    "CalledHandle",
    "Chain",
    "ChainHandle",
    "ChainProgress",
    "Envelope",
    "Failed",
    "Failure",
    "Fair",
    "Group",
    "GroupHandle",
    "Handle",
    "Job",
    "Key",
    "Keys",
    "Later",
    "Limit",
    "Middleware",
    "Options",
    "Outgoing",
    "Rate",
    "Reject",
    "RetryLater",
    "Task",
    "TaskOptions",
    "Tasks",
    "TimeLimit",
    "Unique",
    "celery_task",
    "chain",
    "current_job",
    "group",
    "load_app",
]


def __getattr__(name: str) -> object:
    """Loads a public name at its first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tuque.worker' has no attribute {name!r}")
    found: object = getattr(import_module(f"tuque.worker.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
