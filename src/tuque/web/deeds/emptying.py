"""All ready jobs of a queue cancelled, page by page. Decides which: those that were there first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tuque.clusterview.nodes import Node
from tuque.web.deeds.running import Long

AT_ONCE: Final = 200  # jobs a call


def work(nodes: list[Node], queue: str, who: str) -> Callable[[Long], Awaitable[None]]:
    """The deed: at each node as many jobs as were ready when it came to it."""

    async def run(deed: Long) -> None:
        for node in nodes:
            left = await node.client.qlen(queue)
            while left > 0 and not deed.is_stopped:
                jobs = await node.client.qpeek(queue, min(left, AT_ONCE))
                became = await node.client.cancel(*jobs, reason=f"deleted by {who}") if jobs else []
                ended = became.count("ended")
                deed.seen += len(jobs)
                deed.done += ended
                left -= len(jobs)
                if not ended:
                    break  # it is empty, or a holder that is silent may have them
        deed.seen = max(deed.seen, deed.done)

    return run
