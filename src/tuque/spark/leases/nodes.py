"""Connections to the nodes that a stream reads from, and what happens when one is down.

Knows nothing of leases, offsets or Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from tuque.client.retry import Retry
from tuque.client.sync import Client
from tuque.client.url import Address, Settings
from tuque.errors import ConnectionError, IsTube, Loading, MaxClients, NoQuorum, TubeHome
from tuque.spark.errors import SourceError
from tuque.spark.options.source import url_of

T = TypeVar("T")
IDLE_S: Final = 0.1  # a stream without jobs waits: Spark asks again at once
PAUSE_S: Final = 0.25  # between two attempts at a node that is down
REST_RATIO: Final = 10  # a node that makes others wait in vain is skipped for so many times as long
# NoQuorum: the leader of a tube after its restart, until enough nodes vote for it again (T25).
AWAY: Final = (ConnectionError, OSError, Loading, MaxClients, NoQuorum)


class AwayError(Exception):
    """The node does not respond now."""


class Node:
    """A node, by its address; connects at the first request."""

    def __init__(self, broker: Settings, address: Address, retry_timeout_ms: int) -> None:
        self.address = address
        self._settings = msgspec.structs.replace(
            broker, seeds=(address,), discover=False, retry=Retry(attempts=0)
        )
        self._retry_s = retry_timeout_ms / 1000
        self._client: Client | None = None
        self._until_s = 0.0  # earliest next attempt
        self.why_away = ""  # the last attempt's error; empty: it succeeded

    def ask(self, call: Callable[[Client], T]) -> T:
        """The reply, even if the node is down for a while.

        SourceError if it stays down for retryTimeout, or about a tube; ReplyError if it refuses.
        """
        until_s = time.monotonic() + self._retry_s
        while True:
            try:
                return self._once(call)
            except AWAY as err:
                if time.monotonic() > until_s:
                    raise SourceError(f"{self.address} does not answer: {err}") from err
                time.sleep(PAUSE_S)

    def try_now(self, call: Callable[[Client], T]) -> T:
        """The reply; AwayError at once if there is none, or was none a moment ago."""
        began_s = time.monotonic()
        if began_s < self._until_s:
            raise AwayError(f"{self.address} does not answer")
        try:
            return self._once(call)
        except AWAY as err:
            now_s = time.monotonic()
            self._until_s = now_s + max(PAUSE_S, REST_RATIO * (now_s - began_s))
            raise AwayError(f"{self.address} does not answer: {err}") from err

    def _once(self, call: Callable[[Client], T]) -> T:
        if self._client is None:
            self._client = Client(url_of(self._settings))
        try:
            found = call(self._client)
        except AWAY as err:
            self.why_away = str(err) or type(err).__name__
            raise
        except IsTube as err:
            raise SourceError(of_tube(err.message.removeprefix("ERR "))) from err
        except TubeHome as err:
            raise SourceError(of_tube(f"{err.tube!r} is a tube, led by {err.home}")) from err
        self.why_away = ""
        return found

    def close(self) -> None:
        """Drops the connection."""
        if self._client is not None:
            with suppress(OSError):
                self._client.close()
        self._client = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_until_s": 0.0}


def of_tube(why: str) -> str:
    """What to do when a queue of a stream is a tube, or has become one (T1.6, T17.3)."""
    return (
        f"{why}. A stream with mode=lease reads queues: add the jobs to a plain queue, or let a "
        "worker take the tasks. mode=ids reads a tube at least once, from the node that leads it, "
        "which url must name. read() shows the tasks of a tube and takes none"
    )
