"""Replies of the broker that a writer of rows takes for done, or for refused; no Spark."""

from __future__ import annotations

from tuque.errors import NoReplica
from tuque.spark.sink.wire import refusal_of

FEW = b"-FEWCOPIES done here, but not yet on 2 nodes: do not repeat it"


def test_what_is_done_on_too_few_nodes_is_not_sent_again() -> None:
    """T18.5 If it was done but is not confirmed within `cluster-node-timeout`, the reply is
    `-FEWCOPIES done here, but not yet on <n> nodes: do not repeat it`.
    """
    assert refusal_of(FEW) is None
    refused = refusal_of(b"-NOREPL Not enough reachable nodes for the requested replication level")
    assert type(refused) is NoReplica
    assert refusal_of(b"+D-1") is None
