"""The options of `format("tuque")` for reading; every mistake is found in the driver.

Knows nothing of jobs or batches. Names of options come in lower case, as Spark gives them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from tuque.client.url import Settings
from tuque.spark.errors import SinkError, SourceError
from tuque.spark.options import sink
from tuque.spark.options.names import names_all, split_names, unknown

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
    "nodes",
    "takeover",
    "decode",
    "states",
    "limit",
    "minAge",
    "minDeliveries",
    "numPartitions",
    "maxJobsPerTrigger",
    "maxBytesPerTrigger",
    "leaseTimeout",
    "heartbeat",
    "failOnDataLoss",
    "ackOn",
    "ackedBy",
    "maxBatchAttempts",
    "deadLetterQueue",
    "fetchSize",
    "retryTimeout",
)
OF_LOOKS: Final = ("states", "limit", "minAge", "minDeliveries")
OF_STREAMS: Final = ("numPartitions", "maxJobsPerTrigger", "heartbeat", "ackOn", "fetchSize")
OF_LEASES: Final = (
    "group",
    "nodes",
    "takeover",
    "maxBytesPerTrigger",
    "leaseTimeout",
    "ackedBy",
    "maxBatchAttempts",
    "deadLetterQueue",
)
NO_QUEUE: Final = "option queue is missing: one name, or several with commas"
NO_OPTIONS: Final = (
    f"{NO_QUEUE}. Spark gave the source no options at all, as it does when a table of "
    "CREATE TABLE ... USING tuque is read: make a view with CREATE TEMPORARY VIEW ... USING tuque "
    "OPTIONS (...) instead"
)
GROUP_BYTES: Final = 255  # a name on the broker (SPEC Y1.3)
IDS_MOST: Final = 10_000  # per batch, since they are in the checkpoint
STATES: Final = ("wait-repl", "active", "queued", "acked")
UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
COLUMNS: Final = (
    "id string, queue string, body binary, enqueued_at timestamp, expires_at timestamp, "
    "deliveries int, nacks int, priority int, node string, lease string"
)
TEXT_COLUMNS: Final = COLUMNS.replace("body binary", "body string")  # with decode


@dataclass(frozen=True)
class SourceOptions:
    """All options of a reader."""

    broker: Settings
    queues: tuple[str, ...]
    is_of_all: bool = False  # of all queues, named as `*`
    mode: str = "lease"
    group: str = ""
    is_whole_cluster: bool = False  # also lease from nodes that the given ones know
    may_widen: bool = False  # set by Trigger.AvailableNow, not by the user
    takes_over: bool = False  # takes over a group used with another checkpoint
    is_text: bool = False  # decode bodies as UTF-8
    states: tuple[str, ...] = ("queued",)
    limit: int = 0  # jobs per node in mode=peek; 0: all
    least_age_ms: int = 0
    least_deliveries: int = 0
    partitions: int = 2
    max_jobs: int = 10_000
    max_bytes: int = 64 << 20
    lease_timeout_ms: int = 300_000
    heartbeat_ms: int = 100_000
    fail_on_loss: bool = True
    is_acked_on_next: bool = True  # else at Spark's commit, which is one batch late
    is_acked_by_sink: bool = False  # a batch committed already has been written, too
    max_attempts: int = 0  # 0: no limit
    dead_letter: str = ""  # empty: the job's queue plus .dead
    fetch_size: int = 2000
    retry_timeout_ms: int = 60_000

    @property
    def address(self) -> str:
        """The node's address, for people."""
        return str(self.broker.seeds[0])


def parse(options: Mapping[str, str], streams: bool, parallelism: int) -> SourceOptions:
    """The options, checked; SourceError names the wrong one."""
    given = {key.lower(): value for key, value in options.items()}
    if given.get("path") or given.get("paths"):
        raise SourceError("format tuque has no path: name the queue with .option('queue', ...)")
    wrong = unknown(given, NAMES, "reading")
    if wrong:
        raise SourceError(wrong)
    _check_mode(given, streams)
    try:
        found = _parsed(given, streams, parallelism)
    except SinkError as err:
        raise SourceError(str(err)) from err
    _check(found, given, streams)
    return found


def _mode(given: Mapping[str, str], streams: bool) -> str:
    return given.get("mode", "lease" if streams else "peek").strip().lower()


def _check_mode(given: Mapping[str, str], streams: bool) -> None:
    """Check the mode, and that every option applies to it."""
    mode = _mode(given, streams)
    if mode not in (("lease", "ids") if streams else ("peek",)):
        how = "a stream reads with mode=lease or ids" if streams else "read() looks with mode=peek"
        raise SourceError(f"option mode is {mode!r}; {how}")
    for modes, names in (
        (("peek",), OF_LOOKS),
        (("lease", "ids"), OF_STREAMS),
        (("lease",), OF_LEASES),
    ):
        for name in names:
            if mode not in modes and name.lower() in given:
                raise SourceError(f"option {name} goes with mode={' or '.join(modes)}, not {mode}")


def _parsed(given: Mapping[str, str], streams: bool, parallelism: int) -> SourceOptions:
    mode = _mode(given, streams)
    jobs_most = IDS_MOST if mode == "ids" else 100_000
    lease_ms = sink.duration_ms(given, "leaseTimeout", 300_000, least_ms=1000, most_ms=86_400_000)
    beat_ms = sink.duration_ms(given, "heartbeat", lease_ms // 3, least_ms=100)
    is_by_sink = _choice(given, "ackedBy", ("source", "sink")) == "sink"
    return SourceOptions(
        broker=sink.broker_of(given),
        queues=split_names(given.get("queue", "")),
        is_of_all=names_all(given.get("queue", "")),
        mode=mode,
        group=given.get("group", ""),
        is_whole_cluster=_choice(given, "nodes", ("given", "cluster")) == "cluster",
        may_widen="nodes" not in given and not is_by_sink,
        takes_over=_is_on(given, "takeover", False),
        is_text=_choice(given, "decode", ("none", "utf-8", "utf8")) != "none",
        limit=_whole(given, "limit", 0, 1, 2**31 - 1),
        least_age_ms=sink.duration_ms(given, "minAge", 0, least_ms=0),
        least_deliveries=_whole(given, "minDeliveries", 0, 0, 2**31 - 1),
        states=tuple(given.get("states", "queued").replace(" ", "").split(",")),
        partitions=_whole(given, "numPartitions", max(1, parallelism), 1, 1024),
        max_jobs=_whole(given, "maxJobsPerTrigger", 10_000, 1, jobs_most),
        max_bytes=_bytes(given, "maxBytesPerTrigger", 64 << 20),
        lease_timeout_ms=lease_ms,
        heartbeat_ms=beat_ms,
        fail_on_loss=_is_on(given, "failOnDataLoss", True),
        is_acked_on_next=_choice(given, "ackOn", ("next", "commit")) == "next",
        is_acked_by_sink=is_by_sink,
        max_attempts=_whole(given, "maxBatchAttempts", 0, 0, 1_000_000),
        dead_letter=given.get("deadletterqueue", ""),
        fetch_size=_whole(given, "fetchSize", 2000, 1, 100_000),
        retry_timeout_ms=sink.duration_ms(given, "retryTimeout", 60_000, least_ms=0),
    )


def _check(found: SourceOptions, given: Mapping[str, str], streams: bool) -> None:
    """Check combinations."""
    if not found.queues:
        raise SourceError(NO_OPTIONS if not any(given.values()) else NO_QUEUE)
    if len(found.group.encode()) > GROUP_BYTES:
        raise SourceError(f"option group has more than {GROUP_BYTES} bytes")
    if len(set(found.queues)) < len(found.queues):
        raise SourceError("option queue names a queue twice")
    if found.is_of_all and (streams or len(found.queues) > 1):
        raise SourceError(
            r"option queue: * is used alone and only for read(); a stream names its queues. "
            r"A queue that is named * is \*"
        )
    if found.mode == "lease" and not found.group:
        raise SourceError("option group is missing: a stream needs a name of its own for its lease")
    if found.is_acked_by_sink and (found.is_whole_cluster or len(found.broker.seeds) > 1):
        raise SourceError("option ackedBy=sink needs one node, the one that the sink writes to")
    if found.max_attempts and found.dead_letter in found.queues:
        raise SourceError(
            f"option deadLetterQueue: the stream reads {found.dead_letter!r} itself, so that its "
            "dead letters would come again; name a queue that it does not read"
        )
    if found.mode == "ids" and len(found.broker.seeds) > 1:
        raise SourceError("mode=ids reads from one node: name one in url or host")
    if found.mode == "lease" and found.heartbeat_ms >= found.lease_timeout_ms:
        raise SourceError("option heartbeat must be shorter than leaseTimeout")
    for state in found.states:
        if state not in STATES:
            raise SourceError(f"option states has {state!r}; there are: {', '.join(STATES)}")


def url_of(broker: Settings) -> str:
    """The settings as a URL for a client, secrets included."""
    is_socket = broker.seeds[0].port == 0
    scheme = "tuque+unix" if is_socket else "tuques" if broker.tls else "tuque"
    login = f"{quote(broker.user, '')}:{quote(broker.password, '')}@" if broker.has_login else ""
    more = {
        "timeout": str(broker.timeout_s),
        "connect_timeout": str(broker.connect_timeout_s),
        "name": broker.name,
        "cafile": broker.cafile,
        "certfile": broker.certfile,
        "keyfile": broker.keyfile,
        "follow": "yes" if broker.follow else "no",
        "discover": "yes" if broker.discover else "no",
        "retries": "" if broker.retry.attempts is None else str(broker.retry.attempts),
    }
    query = urlencode({name: value for name, value in more.items() if value})
    return f"{scheme}://{login}{','.join(map(str, broker.seeds))}{'' if is_socket else '/'}?{query}"


def _choice(given: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    """One of the words, the first being the default."""
    text = given.get(name.lower(), "").strip().lower() or words[0]
    if text not in words:
        raise SourceError(f"option {name} must be {' or '.join(words)}, not {text!r}")
    return text


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
