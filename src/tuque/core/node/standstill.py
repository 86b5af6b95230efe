"""Sets the node's time; first detects that the process stood still (SPEC G8)."""

from mypy_extensions import i64

from tuque.core.node.node import Node


def set_time(n: Node, now_ms: i64) -> bool:
    """[G8] Set the time to `now_ms`, never back (G8.1).

    True if the process stood still (G8.4) while this node led tubes: replies not sent yet must be
    dropped (T19.7).
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
    """[G8] Whether the process has stood still since the time was last set (G8.4)."""
    return n.others != 0 and now_ms - n.now_ms > n.limits.node_timeout_ms
