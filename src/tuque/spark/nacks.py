"""Jobs of a leased batch given back as failed, for a function of `foreachBatch`.

Reads only the columns `id` and `lease` of the rows; knows nothing of sessions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from tuque.client.sync import Client
from tuque.spark.errors import SourceError

MOST_IDS: Final = 10_000  # of one command


def nack(url: str, rows: Iterable[Any]) -> int:
    """Gives the jobs of these rows back as failed; gives how many are queued again.

    Rows are Spark's, or mappings, with `id` and `lease`; SourceError when `lease` is none.
    """
    batches: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for row in rows:
        batches[_batch_of(row["lease"])].append(row["id"])
    with Client(url, follow=False) as client:
        return sum(
            client.lease_nack(group, epoch, seq, *ids[at : at + MOST_IDS])
            for (group, epoch, seq), ids in batches.items()
            for at in range(0, len(ids), MOST_IDS)
        )


def _batch_of(lease: str | None) -> tuple[str, int, int]:
    """Group, epoch and number, as the column has them; the group may have slashes."""
    group, epoch, seq = ("", "", "") if not lease else ["", "", *lease.rsplit("/", 2)][-3:]
    if not (group and epoch.isdigit() and seq.isdigit()):
        raise SourceError(f"lease {lease!r} is none of a stream's: group/epoch/number")
    return group, int(epoch), int(seq)
