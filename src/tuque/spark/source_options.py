"""What `format("tuque")` may be told when it reads; every mistake is found in the driver.

Knows nothing of jobs or batches. Names of options come in lower case, as Spark gives them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final
from urllib.parse import quote

from tuque.client.url import Settings
from tuque.spark import sink_options
from tuque.spark.errors import SinkError, SourceError

NAMES: Final = (
    "url",
    "host",
    "port",
    "user",
    "passwordEnv",
    "passwordFile",
    "tls",
    "queue",
    "group",
    "mode",
    "states",
    "numPartitions",
    "maxJobsPerTrigger",
    "maxBytesPerTrigger",
    "leaseTimeout",
    "heartbeat",
    "failOnDataLoss",
    "ackedBy",
    "maxBatchAttempts",
    "deadLetterQueue",
    "fetchSize",
    "retryTimeout",
)
STATES: Final = ("wait-repl", "active", "queued", "acked")
ALL_QUEUES: Final = "*"
UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
COLUMNS: Final = (
    "id string, queue string, body binary, enqueued_at timestamp, expires_at timestamp, "
    "deliveries int, nacks int, priority int, node string, lease string"
)


@dataclass(frozen=True)
class SourceOptions:
    """All that a reader is told."""

    broker: Settings
    queues: tuple[str, ...]
    group: str = ""
    states: tuple[str, ...] = ("queued",)
    partitions: int = 2
    max_jobs: int = 10_000
    max_bytes: int = 64 << 20
    lease_timeout_ms: int = 300_000
    heartbeat_ms: int = 100_000
    fail_on_loss: bool = True
    is_acked_by_sink: bool = False  # a batch that is committed already has been written, too
    max_attempts: int = 0  # 0: no limit
    dead_letter: str = ""  # empty: the job's queue with .dead
    fetch_size: int = 2000
    retry_timeout_ms: int = 60_000

    @property
    def address(self) -> str:
        """Where the node is, for a person."""
        return str(self.broker.seeds[0])


def parse(options: Mapping[str, str], streams: bool, parallelism: int) -> SourceOptions:
    """The options, checked; SourceError names the one that is wrong."""
    given = {key.lower(): value for key, value in options.items()}
    if given.get("path") or given.get("paths"):
        raise SourceError("format tuque has no path: name the queue with .option('queue', ...)")
    known = {name.lower() for name in NAMES}
    for key in given:
        if key not in known and key not in ("path", "paths"):
            raise SourceError(_unknown(key))
    try:
        found = _parsed(given, parallelism)
    except SinkError as err:
        raise SourceError(str(err)) from err
    _check(found, given, streams)
    return found


def _unknown(key: str) -> str:
    """What to say of an option that there is not; the one that was probably meant comes first."""
    spelt = {name.lower(): name for name in NAMES}
    near = get_close_matches(key, spelt, n=1)
    meant = f"did you mean {spelt[near[0]]}? " if near else ""
    return f"unknown option {key!r} for reading; {meant}There are: {', '.join(NAMES)}"


def _parsed(given: Mapping[str, str], parallelism: int) -> SourceOptions:
    lease_ms = sink_options.duration_ms(
        given, "leaseTimeout", 300_000, least_ms=1000, most_ms=86_400_000
    )
    beat_ms = sink_options.duration_ms(given, "heartbeat", lease_ms // 3, least_ms=100)
    return SourceOptions(
        broker=sink_options.broker_of(given),
        queues=tuple(name.strip() for name in given.get("queue", "").split(",") if name.strip()),
        group=given.get("group", ""),
        states=tuple(given.get("states", "queued").replace(" ", "").split(",")),
        partitions=_whole(given, "numPartitions", max(1, parallelism), 1, 1024),
        max_jobs=_whole(given, "maxJobsPerTrigger", 10_000, 1, 100_000),
        max_bytes=_bytes(given, "maxBytesPerTrigger", 64 << 20),
        lease_timeout_ms=lease_ms,
        heartbeat_ms=beat_ms,
        fail_on_loss=_is_on(given, "failOnDataLoss", True),
        is_acked_by_sink=given.get("ackedby", "source").lower() == "sink",
        max_attempts=_whole(given, "maxBatchAttempts", 0, 0, 1_000_000),
        dead_letter=given.get("deadletterqueue", ""),
        fetch_size=_whole(given, "fetchSize", 2000, 1, 100_000),
        retry_timeout_ms=sink_options.duration_ms(given, "retryTimeout", 60_000, least_ms=0),
    )


def _check(found: SourceOptions, given: Mapping[str, str], streams: bool) -> None:
    """What goes together."""
    if not found.queues:
        raise SourceError("option queue is missing: one name, or several with commas")
    if ALL_QUEUES in found.queues and (streams or len(found.queues) > 1):
        raise SourceError(
            "option queue: * stands alone and is for read(); a stream names its queues"
        )
    mode = given.get("mode", "lease" if streams else "peek").lower()
    if mode != ("lease" if streams else "peek"):
        how = "a stream reads with mode=lease" if streams else "read() looks with mode=peek"
        raise SourceError(f"option mode is {mode!r}; {how}")
    if streams and not found.group:
        raise SourceError("option group is missing: a stream needs a name of its own for its lease")
    if streams and len(found.broker.seeds) > 1:
        raise SourceError("a stream leases from one node: name one in url or host")
    if given.get("ackedby", "source").lower() not in ("source", "sink"):
        raise SourceError("option ackedBy must be source, or sink when the sink has ackGroup")
    if found.heartbeat_ms >= found.lease_timeout_ms:
        raise SourceError("option heartbeat must be shorter than leaseTimeout")
    for state in found.states:
        if state not in STATES:
            raise SourceError(f"option states has {state!r}; there are: {', '.join(STATES)}")


def url_of(broker: Settings) -> str:
    """The settings as a URL for a client, secrets included."""
    scheme = "tuques" if broker.tls else "tuque"
    login = f"{quote(broker.user, '')}:{quote(broker.password, '')}@" if broker.password else ""
    return f"{scheme}://{login}{','.join(map(str, broker.seeds))}"


def _whole(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name.lower(), "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise SourceError(f"option {name} must be a whole number {least} to {most}, not {text!r}")
    return int(text)


def _bytes(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower(), "").strip().lower()
    if not text:
        return default
    found = re.fullmatch(r"(\d+)([kmg]?)b?", text)
    value = int(found[1]) * UNITS[found[2]] if found else 0
    if not 1 <= value <= 2 << 30:
        raise SourceError(f"option {name} must be a size such as 64m, 2g at most, not {text!r}")
    return value


def _is_on(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise SourceError(f"option {name} must be true or false, not {text!r}")
    return text == "true"
