"""Requeues jobs of a leased batch as failed, for a function of `foreachBatch`.

Uses only the columns `id`, `lease` and `node` of the rows; knows nothing of sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tuque.client.sync import Client
from tuque.client.url import parse, settings
from tuque.spark.errors import SourceError
from tuque.spark.options.source import url_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batch = tuple[str, int, int]  # group, epoch, number
MOST_IDS: Final = 10_000  # per command


def nack(url: str, rows: Iterable[Any] | DataFrame) -> int:
    """Requeues the jobs of these rows as failed; returns how many.

    Rows are a DataFrame, or Spark's rows, or mappings, with `id` and `lease`, and with `node` if
    `url` names several nodes. SourceError if a column is missing, or `lease` is invalid.
    """
    nodes: dict[str, dict[Batch, list[str]]] = {}
    needed = ("id", "lease", "node") if len(settings(url).seeds) > 1 else ("id", "lease")
    for row in _collected(rows):
        for name in needed:
            if name not in row:  # works for Spark's rows, too
                raise SourceError(
                    f"nack() needs the columns {', '.join(needed)}; the rows have no {name}"
                )
        has_node = "node" in row
        batches = nodes.setdefault(row["node"] if has_node else "", {})
        batches.setdefault(_batch_of(row["lease"]), []).append(row["id"])
    return sum(_nack(_url_of(url, node), batches) for node, batches in nodes.items())


def _collected(rows: Iterable[Any] | DataFrame) -> Iterable[Any]:
    """The rows; of a DataFrame only the needed columns, collected."""
    columns = getattr(rows, "columns", None)
    if columns is None:
        return cast("Iterable[Any]", rows)
    frame = cast("DataFrame", rows)
    return frame.select([name for name in ("id", "lease", "node") if name in columns]).collect()


def _nack(url: str, batches: dict[Batch, list[str]]) -> int:
    with Client(url, discover=False) as client:
        return sum(
            client.lease_nack(*batch, *ids[at : at + MOST_IDS])
            for batch, ids in batches.items()
            for at in range(0, len(ids), MOST_IDS)
        )


def _url_of(url: str, node: str) -> str:
    """The URL with that node instead of its own; empty: with its own."""
    if not node:
        return url
    found = settings(url)
    (address,) = parse(f"tuque://{node}").seeds if found.seeds[0].port else found.seeds
    return url_of(msgspec.structs.replace(found, seeds=(address,)))


def _batch_of(lease: str | None) -> Batch:
    """Group, epoch and number in the column's text; the group may contain slashes."""
    group, epoch, seq = ("", "", "") if not lease else ["", "", *lease.rsplit("/", 2)][-3:]
    if not (group and epoch.isdigit() and seq.isdigit()):
        raise SourceError(f"lease {lease!r} is none of a stream's: group/epoch/number")
    return group, int(epoch), int(seq)
