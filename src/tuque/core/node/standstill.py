"""The node's time is set; a process that stood still notices that first (SPEC G8)."""

from mypy_extensions import i64

from tuque.core.node.node import Node


def set_time(n: Node, now_ms: i64) -> bool:
    """[G8] It is `now_ms` from now on, or as late as it was (G8.1).

    True when the process stood still (G8.4) and this node was the home of tubes meanwhile:
    answers that it has not sent yet must not be sent any more (T19.7).
    """
    span_ms = now_ms - n.now_ms
    if span_ms <= 0:
        return False
    stood = has_stood(n, now_ms)
    n.now_ms = now_ms
    if not stood:
        return False
    n.standstills += 1
    n.stood_ms = span_ms
    return n.policy is not None and n.policy.on_standstill(n)


def has_stood(n: Node, now_ms: i64) -> bool:
    """[G8] Whether the process stood still since the time was set (G8.4)."""
    return n.others != 0 and now_ms - n.now_ms > n.limits.node_timeout_ms
