"""Dead letters back to work, or removed: those of groups, a selection, or all that match."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from tuque.clusterview.dead_letters import Letter, by_node
from tuque.clusterview.nodes import Nodes
from tuque.errors import Duplicate
from tuque.web.deeds.proposal import TYPED_FROM, Field, Proposal
from tuque.web.deeds.running import Long
from tuque.web.show.text import plural

AT_ONCE = 100  # letters a call: a page of progress


def proposal(
    letters: list[Letter], is_delete: bool, goes_on: str, hidden: list[tuple[str, str]]
) -> Proposal:
    """What the dialog asks about these letters."""
    count = len(letters)
    origins = sorted({one.row.origin for one in letters})
    queues = sorted({one.queue for one in letters})
    reasons = sorted({one.reason for one in letters})
    about = reasons[0] if len(reasons) == 1 else f"{plural(len(reasons), 'reason')}"
    about = f"{', '.join(queues)}: {about}"
    jobs = plural(count, "job")
    if is_delete:
        return Proposal(
            "delete-dead",
            f"Delete {jobs}?",
            f"Delete {count:,}",
            "Delete",
            about,
            [
                f"{jobs} will be gone for good, with body and reason.",
                "Jobs that die while this runs are left out.",
                "This cannot be undone.",
            ],
            hidden,
            count=count,
            is_danger=True,
            typed=queues[0] if count > TYPED_FROM and queues else "",
        )
    return Proposal(
        "retry-dead",
        f"Retry {jobs}?",
        f"Retry {count:,}",
        "Retry",
        about,
        [
            f"They go back to {', '.join(origins) or 'their queues'} under their ids.",
            "They start again with their first attempt.",
            "Jobs that die while this runs are left out.",
        ],
        hidden,
        [Field("to", "Into another queue (empty: where they came from)")],
        count=count,
        warning=goes_on,
    )


def work(
    nodes: Nodes, letters: list[Letter], is_delete: bool, to: str
) -> Callable[[Long], Awaitable[None]]:
    """The deed itself, page by page."""

    async def run(deed: Long) -> None:
        shares = by_node(letters, nodes.up())
        for (id, queue), ids in shares.items():
            client = nodes.known[id].client
            for at in range(0, len(ids), AT_ONCE):
                if deed.is_stopped:
                    return
                page = ids[at : at + AT_ONCE]
                if is_delete:
                    deed.done += await client.dead_purge(queue, ids=page)
                else:
                    with contextlib.suppress(Duplicate):  # another task has its unique key
                        deed.done += await client.dead_replay(queue, ids=page, to=to or None)
                deed.seen += len(page)
        deed.seen = deed.total  # those of silent nodes are refused

    return run
