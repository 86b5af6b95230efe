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

from tuque.worker.groups.chain import Chain, chain
from tuque.worker.groups.chained import ChainHandle, ChainProgress
from tuque.worker.groups.group import Called, Group, group
from tuque.worker.groups.handles import CalledHandle, GroupHandle
from tuque.worker.groups.later import Later
from tuque.worker.groups.results import Failed
from tuque.worker.pools.execute import Attempt, Job, current_job
from tuque.worker.seal.keys import Key, Keys
from tuque.worker.tasks.adding import Call
from tuque.worker.tasks.app import App, load_app
from tuque.worker.tasks.codec import BadBody, Envelope
from tuque.worker.tasks.handle import Handle
from tuque.worker.tasks.hooks import Failure, Outgoing
from tuque.worker.tasks.keys import Fair, Limit, Rate, Unique
from tuque.worker.tasks.options import Options, TaskOptions
from tuque.worker.tasks.policy import Backoff
from tuque.worker.tasks.task import AsyncTask, Reject, RetryLater, Task

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
    "Options",
    "Outgoing",
    "Rate",
    "Reject",
    "RetryLater",
    "Task",
    "TaskOptions",
    "Unique",
    "chain",
    "current_job",
    "group",
    "load_app",
]
