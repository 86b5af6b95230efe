"""The method table, topics: a job for each queue that is subscribed (SPEC T60 to T62)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tuque.client.api import Arg, Reply, Text, to_bytes, to_text
from tuque.client.commands.calls import (
    Call,
    add_headers,
    job_options,
    tube_options,
    whole,
    work_options,
)


class Subscription(msgspec.Struct, frozen=True):
    """A queue that gets the jobs of a topic whose headers match `filters`, patterns by name, and
    whose key fits one of `keys`, if there are some.

    `jobs` came through it since the node started, by `topic_add` there.
    """

    topic: str
    queue: str
    filters: dict[str, str]
    jobs: int
    keys: tuple[str, ...] = ()


def topic_add(
    topic: Text,
    body: Text,
    *,
    key: Text | None = None,
    timeout_ms: int = 5000,
    replicate: int | None = None,
    delay: float | None = None,
    retry: int | None = None,
    ttl: float | None = None,
    maxlen: int | None = None,
    dedupe: Text | None = None,
    dedupe_ttl: int | None = None,
    pri: int | None = None,
    attempts: int | None = None,
    backoff: tuple[float, float, float] | None = None,
    dead: Text | None = None,
    keep: float | None = None,
    keep_body: bool = False,
    time_limit: float | None = None,
    on_expiry: Literal["dead", "drop"] | None = None,
    headers: Mapping[str, Text] | None = None,
    timeout: float | None = None,
) -> Call[list[str]]:
    """Adds a job to each queue that is subscribed to the topic, or to none; returns their ids.

    The order is that of the queues' names; an empty list: no queue is subscribed, or the filters of
    all let the `headers` not pass, or their patterns the `key`. Options as of `addjob`.
    """
    timeout_ms = whole("timeout_ms", timeout_ms)
    args: list[Arg] = ["TOPIC", "ADD", to_bytes(topic, "topic"), to_bytes(body, "body"), timeout_ms]
    if key is not None:
        args += ("KEY", to_bytes(key, "key"))
    args += job_options(replicate, delay, retry, ttl, maxlen, dedupe, dedupe_ttl)
    args += tube_options(pri, None)
    args += work_options(attempts, backoff, dead, keep, time_limit, on_expiry, keep_body)
    add_headers(args, headers)
    return Call(
        args=tuple(args),
        parse=_texts,
        repeat=dedupe is not None,
        pinned=dedupe is not None,
        wait_s=timeout_ms / 1000 if timeout_ms > 0 else None,
        timeout_s=timeout,
    )


def _texts(reply: Reply) -> list[str]:
    return [to_text(word) for word in reply]


def topic_subscribe(
    topic: Text,
    queue: Text,
    filters: Mapping[str, Text] | None = None,
    *,
    key: Text | None = None,
    timeout: float | None = None,
) -> Call[bool]:
    """Has a queue get the jobs of a topic; False if that changed nothing.

    With `filters` only jobs that have all these headers, with values that match the patterns. With
    `key`, words between dots, those whose key fits this pattern or one given before: `*` is a word,
    `#` any number of words.
    """
    args: list[Arg] = ["TOPIC", "SUBSCRIBE", to_bytes(topic, "topic"), to_bytes(queue, "queue")]
    if key is not None:
        args += ("KEY", to_bytes(key, "key"))
    if filters is not None and not isinstance(filters, Mapping):
        raise TypeError(f"filters are patterns by the names of headers, not {filters!r}")
    if filters:
        args.append("FILTER")
        for name, glob in filters.items():
            args += (name, to_bytes(glob, "glob"))
    return Call(args=tuple(args), parse=bool, repeat=True, timeout_s=timeout)


def topic_unsubscribe(
    topic: Text, queue: Text, *, key: Text | None = None, timeout: float | None = None
) -> Call[bool]:
    """Ends a subscription, or that to one pattern of keys; jobs in the queue stay. False: there was
    none.
    """
    args: list[Arg] = ["TOPIC", "UNSUBSCRIBE", to_bytes(topic, "topic"), to_bytes(queue, "queue")]
    if key is not None:
        args += ("KEY", to_bytes(key, "key"))
    return Call(args=tuple(args), parse=bool, repeat=True, timeout_s=timeout)


def topic_page(
    cursor: str,
    *,
    topic: Text | None = None,
    count: int | None = None,
    timeout: float | None = None,
) -> Call[tuple[str, list[Subscription]]]:
    """One step of a list of subscriptions: the next cursor, "0" at the end, and subscriptions."""
    args: list[Arg] = ["TOPIC", "LIST", "CURSOR", cursor]
    args += ("COUNT", 100 if count is None else count)
    if topic is not None:
        args += ("TOPIC", to_bytes(topic, "topic"))
    return Call(args=tuple(args), parse=_subscriptions, repeat=True, timeout_s=timeout)


def _subscriptions(reply: Reply) -> tuple[str, list[Subscription]]:
    cursor, rows = reply
    found = []
    for topic, queue, words, jobs, *more in rows:
        texts = [to_text(word) for word in words]
        filters = dict(zip(texts[::2], texts[1::2], strict=True))
        keys = tuple([to_text(key) for key in more[0]]) if more else ()
        found.append(Subscription(to_text(topic), to_text(queue), filters, jobs, keys))
    return to_text(cursor), found
