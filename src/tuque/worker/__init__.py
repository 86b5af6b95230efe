"""The worker: tasks that are enqueued like typed functions, and the program that runs them.

    from tuque.worker import App

    app = App("tuque://127.0.0.1:7711")

    @app.task(queue="mail", retry_s=60, attempts=5)
    def send(to: str, text: str) -> None: ...

    send.enqueue("you@example.org", "hello")

and then `tuque worker module:app`. Uses the client.

Must not know: the server.
"""

from __future__ import annotations

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
from tuque.worker.pools.execute import Attempt, Job, current_job
from tuque.worker.workflow.chain import Chain, Later, chain
from tuque.worker.workflow.chain_handle import ChainHandle, ChainProgress
from tuque.worker.workflow.group import Called, Group, group
from tuque.worker.workflow.group_handle import CalledHandle, GroupHandle
from tuque.worker.workflow.results import Failed

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
    "chain",
    "current_job",
    "group",
    "load_app",
]
