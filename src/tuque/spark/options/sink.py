"""The options of `format("tuque")` for writing; every mistake is found in the driver.

Knows nothing of rows, sockets or Spark. Names of options come in lower case, as Spark gives them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from tuque.client.url import Settings, settings
from tuque.errors import ConfigError
from tuque.spark.errors import SinkError
from tuque.spark.options.names import unknown

Mode = Literal["append", "dedupe", "staged"]
MODES: Final[tuple[Mode, ...]] = ("append", "dedupe", "staged")
NAMES: Final = (
    "url",
    "host",
    "port",
    "user",
    "passwordEnv",
    "passwordFile",
    "tls",
    "queue",
    "mode",
    "dedupeTtl",
    "txnAppId",
    "txnVersion",
    "delay",
    "ttl",
    "retry",
    "replicate",
    "async",
    "timeout",
    "pipeline",
    "retryTimeout",
    "stageTtl",
    "ackGroup",
    "progressTo",
)
UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DAY_MS: Final = 86_400_000
MOST_MS: Final = (2**31 - 1) * 1000  # the broker counts seconds in 32 bits
NAME_MAX: Final = 200  # bytes of txnAppId: a transaction's name is a little longer, and has 255


@dataclass(frozen=True)
class SinkOptions:
    """All options of a writer. Times of jobs are None for the broker's defaults."""

    broker: Settings
    mode: Mode = "append"
    queue: str = ""  # empty: every row has its own
    dedupe_ttl_ms: int = DAY_MS
    app: str = ""  # empty: the streaming query's id, or a fresh name for a batch write
    version: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    retry_ms: int | None = None
    replicate: int | None = None
    asynchronous: bool = False
    timeout_ms: int = 5000
    pipeline: int = 1000
    retry_timeout_ms: int = 60_000
    stage_ttl_ms: int = DAY_MS
    ack_group: str = ""
    progress_to: str = ""  # host:port that receives datagrams with counts of rows


def parse(options: Mapping[str, str]) -> SinkOptions:
    """The options, checked; SinkError names the wrong one."""
    given = {key.lower(): value for key, value in options.items()}
    if given.get("path") or given.get("paths"):
        raise SinkError("format tuque has no path: name the queue with .option('queue', ...)")
    wrong = unknown(given, NAMES, "writing")
    if wrong:
        raise SinkError(wrong)
    found = SinkOptions(
        broker=broker_of(given),
        mode=_mode(given),
        queue=given.get("queue", ""),
        dedupe_ttl_ms=duration_ms(given, "dedupeTtl", DAY_MS, least_ms=1, most_ms=365 * DAY_MS),
        app=given.get("txnappid", ""),
        version=_whole(given, "txnVersion", 0),
        delay_ms=_maybe_ms(given, "delay", 0),
        ttl_ms=_maybe_ms(given, "ttl", 1),
        retry_ms=_maybe_ms(given, "retry", 0),
        replicate=_whole(given, "replicate", 1),
        asynchronous=_is_on(given, "async"),
        timeout_ms=duration_ms(given, "timeout", 5000, least_ms=1),
        pipeline=_whole(given, "pipeline", 1) or 1000,
        retry_timeout_ms=duration_ms(given, "retryTimeout", 60_000, least_ms=0),
        stage_ttl_ms=duration_ms(given, "stageTtl", DAY_MS, least_ms=1000, most_ms=7 * DAY_MS),
        ack_group=given.get("ackgroup", ""),
        progress_to=given.get("progressto", ""),
    )
    _check(found, given)
    return found


def _check(found: SinkOptions, given: Mapping[str, str]) -> None:
    """Check combinations, and where progress goes."""
    port = found.progress_to.rpartition(":")[2]
    if found.progress_to and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise SinkError(f"option progressTo is host:port, and not {found.progress_to!r}")
    if found.mode != "append" and len(found.broker.seeds) > 1:
        raise SinkError(
            f"mode {found.mode} needs one node: it is the node that remembers what was written. "
            "Name one in url or host"
        )
    for name, mode in (
        ("dedupeTtl", "dedupe"),
        ("txnAppId", "staged"),
        ("txnVersion", "staged"),
        ("stageTtl", "staged"),
        ("ackGroup", "staged"),
    ):
        if given.get(name.lower()) and found.mode != mode:
            raise SinkError(f"option {name} goes with mode={mode}, not with {found.mode}")
    if found.mode == "staged" and found.asynchronous:
        raise SinkError("option async does not go with mode=staged")
    if found.version is not None and not found.app:
        raise SinkError("option txnVersion needs txnAppId")
    if len(found.app.encode()) > NAME_MAX:
        raise SinkError(f"option txnAppId is longer than {NAME_MAX} bytes")


def duration_ms(
    given: Mapping[str, str],
    name: str,
    default_ms: int,
    *,
    least_ms: int,
    most_ms: int = MOST_MS,
) -> int:
    """Milliseconds of an option such as 500ms, 30s, 5m, 1d; a plain number is seconds."""
    text = given.get(name.lower(), "").strip().lower()
    if not text:
        return default_ms
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", text)
    if found is None:
        raise SinkError(f"option {name} must be a time such as 500ms, 30s, 5m or 1d, not {text!r}")
    value_ms = round(float(found[1]) * UNITS_MS[found[2] or "s"])
    if not least_ms <= value_ms <= most_ms:
        raise SinkError(f"option {name} must be {least_ms} to {most_ms} ms, not {text!r}")
    return value_ms


def _maybe_ms(given: Mapping[str, str], name: str, least_ms: int) -> int | None:
    if not given.get(name.lower(), "").strip():
        return None
    return duration_ms(given, name, 0, least_ms=least_ms)


def _mode(given: Mapping[str, str]) -> Mode:
    text = given.get("mode", "append").lower()
    for mode in MODES:
        if text == mode:
            return mode
    raise SinkError(f"option mode must be one of {', '.join(MODES)} for writing, not {text!r}")


def _whole(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name.lower(), "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise SinkError(f"option {name} must be a whole number from {least} on, not {text!r}")
    return int(text)


def _is_on(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name.lower(), "false").strip().lower()
    if text not in ("true", "false"):
        raise SinkError(f"option {name} must be true or false, not {text!r}")
    return text == "true"


def broker_of(given: Mapping[str, str]) -> Settings:
    """The broker's address and login; secrets come from a variable or a file."""
    url = given.get("url") or None
    if url is not None and (given.get("host") or given.get("port")):
        raise SinkError("options url and host/port exclude each other")
    if url is None and (given.get("host") or given.get("port")):
        scheme = "tuques" if _is_on(given, "tls") else "tuque"
        url = f"{scheme}://{given.get('host') or '127.0.0.1'}:{given.get('port') or 7711}"
    try:
        found = settings(url)
    except ConfigError as e:
        raise SinkError(f"option {'url' if given.get('url') else 'host/port'}: {e}") from e
    if _is_on(given, "tls") and not found.tls:
        found = msgspec.structs.replace(found, tls=True)
    user, password = given.get("user") or found.user, _password(given) or found.password
    return msgspec.structs.replace(found, user=user, password=password)


def _password(given: Mapping[str, str]) -> str:
    variable, path = given.get("passwordenv"), given.get("passwordfile")
    if variable:
        if variable not in os.environ:
            raise SinkError(f"option passwordEnv names {variable}, which is not set in the driver")
        return os.environ[variable]
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as e:
            raise SinkError(f"option passwordFile: {path}: {e.strerror}") from e
    return ""
