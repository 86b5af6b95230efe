"""Tests of programs that use Tuque: a broker in the test's process, or real nodes.

    from tuque.testing import TestApp, job

    def test_mail(tuque_app: TestApp) -> None:
        sign_up("ann")
        tuque_app.assert_enqueued(send, "ann", text=ANY)
        tuque_app.run_until_idle()

The fixtures `tuque_app`, `tuque_server` and `tuque_cluster` come with the package, as a plugin of
pytest. Names are loaded at first use: pytest imports this package in every project.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuque.testing.app import NotRun, TestApp
    from tuque.testing.here import job
    from tuque.testing.jobs import TestJob
    from tuque.testing.nodes import NodeError, TestCluster, TestNode

HOMES: Final = {
    "NodeError": "nodes",
    "NotRun": "app",
    "TestApp": "app",
    "TestCluster": "nodes",
    "TestJob": "jobs",
    "TestNode": "nodes",
    "job": "here",
}

__all__ = ["NodeError", "NotRun", "TestApp", "TestCluster", "TestJob", "TestNode", "job"]


def __getattr__(name: str) -> object:
    home = HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found: object = getattr(import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as err:
        if (err.name or "").startswith("tuque."):  # a package of the node
            text = f"{__name__} needs the node: pip install 'tuque[testing]'"
            raise ModuleNotFoundError(text, name=err.name) from None
        raise
    globals()[name] = found
    return found
