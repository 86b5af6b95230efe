"""Celery's results as values of a tube, and chords as sets of parts that are counted once there."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar

from celery import states
from celery.backends.asynchronous import AsyncBackendMixin, BaseResultConsumer
from celery.backends.base import BaseKeyValueStoreBackend, _create_chord_error_with_cause
from celery.canvas import maybe_signature
from celery.exceptions import BackendStoreError, ChordError
from celery.result import GroupResult, allow_join_result
from celery.utils.functional import _regen
from celery.utils.log import get_logger
from kombu.utils.compat import detect_environment

from tuque.celery.broker import broker_of, patiently
from tuque.celery.options import CHORD_HEADER, SCHEMES, Place, read_options, read_url, read_urls
from tuque.client.commands.values import value_parts_page
from tuque.client.sync.client import Client
from tuque.errors import ConfigError, ConnectionError, Error, NoTube, ReplyError

TUBE: Final = "celery.results"
NAMES_AT_ONCE: Final = 500
TURN_S: Final = 0.1  # where a wait does not cover all pending results, or cannot be ended
LATE_INDEX: Final = 500_000  # parts whose index another task has come from here
INDEXES: Final = 1_000

logger = get_logger(__name__)
T = TypeVar("T")


class ResultConsumer(BaseResultConsumer):
    """Waits for all results that are pending in this process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending: dict[str, str] = {}  # ids of tasks by the names of values
        self._first = 0
        self._is_threaded = detect_environment() == "default"

    def start(self, initial_task_id: str, **kwargs: Any) -> None:
        """The first result that is waited for."""
        self.consume_from(initial_task_id)

    def consume_from(self, task_id: str) -> None:
        """Wait for this result as well."""
        self._pending[self.backend.name_of(task_id)] = task_id

    def cancel_for(self, task_id: str) -> None:
        """Waits for this one no longer."""
        self._pending.pop(self.backend.name_of(task_id), None)

    def on_wait_for_pending(self, result: Any, **kwargs: Any) -> None:
        """Nothing: a wait returns results that are there already."""

    def on_after_fork(self) -> None:
        """The parent's results are not ours."""
        self._pending = {}

    def drain_events(self, timeout: float | None = None) -> None:
        """Returns after some results came, or after `timeout` seconds."""
        names = list(self._pending)
        wait_s = 1.0 if timeout is None else timeout
        if not names:
            time.sleep(wait_s)
            return
        if len(names) > NAMES_AT_ONCE or not self._is_threaded:
            wait_s = min(wait_s, TURN_S)
        self._first = self._first + NAMES_AT_ONCE if self._first + NAMES_AT_ONCE < len(names) else 0
        some = names[self._first : self._first + NAMES_AT_ONCE]
        for name, value in self.backend.wait(some, wait_s).items():
            if value is None:  # it was forgotten
                self._pending.pop(name, None)
                continue
            meta = self.backend.decode_result(value)
            self._pending.pop(name, None)
            self.on_state_change(meta, None)


def place_of(app: Any, url: str) -> Place:
    """Where results are: of `tuque://` alone, where the broker is."""
    if url.partition("://")[2].strip("/"):
        return read_url(url)
    broker = app.connection_for_write()
    if broker.transport_cls not in SCHEMES:
        raise ConfigError(
            f"result_backend {url!r} is where the broker is, and broker_url is no URL of Tuque: "
            "name a node in result_backend"
        )
    return read_urls(broker.alt or [broker.hostname or "tuque://"], broker.ssl)


class Backend(AsyncBackendMixin, BaseKeyValueStoreBackend):
    """`result_backend = "tuque://..."`."""

    ResultConsumer = ResultConsumer
    supports_autoexpire = True
    supports_native_join = True

    def __init__(self, app: Any, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(app, url=url, **kwargs)
        place = place_of(app, url or "tuque://")
        self._masked = place.masked
        self._place = place.url, read_options({}).retry
        self._tube = place.prefix + TUBE
        self.result_consumer = self.ResultConsumer(
            self, self.app, self.accept, self._pending_results, self._pending_messages
        )

    def __reduce__(self, args: Any = (), kwargs: Any = None) -> Any:
        return super().__reduce__(args, dict(kwargs or {}, expires=self.expires, url=self.url))

    def as_uri(self, include_password: bool = False) -> str:
        """The URL for people, without a password unless that is asked for."""
        return str(self.url) if include_password else self._masked

    @property
    def client(self) -> Client:
        """The one of this process for the URL."""
        return broker_of(*self._place).client

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """All that is done here may be done twice."""
        return isinstance(exc, Error) and (exc.retryable or isinstance(exc, ConnectionError))

    def _asked(self, call: Callable[[], T]) -> T:
        """What a call returns; the tube is made if there is none."""

        def asked() -> T:
            try:
                return call()
            except NoTube:
                self.client.tube(self._tube).create("tasks", if_not_exists=True)
                return call()

        return patiently(asked)

    @property
    def _ttl_s(self) -> float:
        return float(self.expires or 0)

    # ---- Values

    def name_of(self, task_id: str) -> str:
        """The name of the value that has the result of a task."""
        return str(self.get_key_for_task(task_id), "utf-8")

    def wait(self, names: list[str], wait_s: float) -> dict[str, bytes | None]:
        """The results that came, None for those that were forgotten."""
        wait_ms = max(1, int(wait_s * 1000))
        return self._asked(
            lambda: self.client.value_wait(self._tube, *names, wait_ms=wait_ms, count=1)
        )

    def get(self, key: bytes) -> bytes | None:
        """A value, None without one."""
        return self.mget([key])[0]

    def mget(self, keys: list[bytes]) -> list[bytes | None]:
        """Values in the order of the keys."""
        found: dict[str, bytes | None] = {}
        names = [key.decode() for key in keys]
        left = list(dict.fromkeys(names))
        while left:
            get = partial(self.client.value_get, self._tube, *left[:NAMES_AT_ONCE])
            found.update(self._asked(get))
            left = [name for name in left if name not in found]  # a reply may have room for fewer
        return [found[name] for name in names]

    def set(self, key: bytes, value: bytes | str) -> None:
        """A value that is not waited for."""
        self._set(key, value)

    def _set(self, key: bytes, value: bytes | str, state: str = "") -> None:
        """[T70] Of a task that has ended, waits end, too; a success is not overwritten."""
        try:
            self._asked(
                lambda: self.client.value_set(
                    self._tube,
                    key,
                    value,
                    ttl=self._ttl_s,
                    end=state in states.READY_STATES,
                    fixed=state == states.SUCCESS,
                )
            )
        except ReplyError as err:
            if err.retryable:
                raise
            size = len(value)
            raise BackendStoreError(
                f"a result of {size} bytes cannot be stored: {err}; the limit of the node is "
                "`max-body-bytes`, keep large results elsewhere",
                state=state,
            ) from err

    def _set_with_state(self, key: bytes, value: bytes | str, state: str) -> None:
        self._set(key, value)

    def _store_result(
        self,
        task_id: str,
        result: Any,
        state: str,
        traceback: Any = None,
        request: Any = None,
        **kwargs: Any,
    ) -> Any:
        meta = self._get_result_meta(
            result=result, state=state, traceback=traceback, request=request
        )
        meta["task_id"] = task_id
        self._set(self.get_key_for_task(task_id), self.encode(meta), state)
        return result

    def delete(self, key: bytes) -> None:
        """The value is gone."""
        self._asked(lambda: self.client.value_drop(self._tube, key))

    def forget(self, task_id: str) -> None:
        """The result is gone."""
        super().forget(task_id)
        self.result_consumer.cancel_for(task_id)

    def incr(self, key: bytes) -> int:
        """One more."""
        return self._add(key, 1)

    def expire(self, key: bytes, value: float) -> None:
        """Nothing: each value has its end from the start."""

    def _add(self, key: bytes, n: int) -> int:
        return self._asked(lambda: self.client.value_add(self._tube, key, n, ttl=self._ttl_s))

    # ---- Chords

    def apply_chord(self, header_result_args: Any, body: Any, **kwargs: Any) -> None:
        """A header of groups is saved, since parts alone would lose its form; one that is made as
        it is published is not read here."""
        self.ensure_chords_allowed()
        if not isinstance(header_result_args[1], _regen):
            header = self.app.GroupResult(*header_result_args)
            if any(isinstance(one, GroupResult) for one in header.results):
                header.save(backend=self)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Set the number of parts that complete the chord; parts added before count."""
        self.set(self.get_key_for_group(group_id, ".s"), str(chord_size))
        self._resize(group_id, chord_size + self._add(self.get_key_for_group(group_id, ".t"), 0))

    def add_to_chord(self, group_id: str, result: Any) -> None:
        """One part more."""
        added = self._add(self.get_key_for_group(group_id, ".t"), 1)
        size = self.get(self.get_key_for_group(group_id, ".s"))
        if size is not None:
            self._resize(group_id, int(size) + added)

    def _resize(self, group_id: str, size: int) -> None:
        name = self.get_key_for_group(group_id, ".j")
        self._asked(
            lambda: self.client.value_tally(self._tube, name, None, size=size, ttl=self._ttl_s)
        )

    def on_chord_part_return(
        self, request: Any, state: str, result: Any, propagate: Any = None, **kwargs: Any
    ) -> None:
        """[T70] Counts a part once; who completes the set publishes the body, also when it repeats
        its part after a crash."""
        if not request.group or not request.id:
            return
        name = self.get_key_for_group(request.group, ".j")
        value = self.encode_result(result, state)
        if self._count(request, name, [request.id, state, value]).completes:
            self._complete(request, name)

    def _count(self, request: Any, name: bytes, part: list[Any]) -> Any:
        """Adds a part at its index in the header. Parts of a group in the header have the same one,
        as have those that a task adds: all but the first take a late index, by their id."""
        late = LATE_INDEX + zlib.crc32(str(request.id).encode()) % INDEXES
        index: int = late if request.group_index is None else request.group_index
        body = self.encode([index, *part])
        while True:
            counted, there = self._added(name, index, body)
            if there is None or self.decode(there)[1] == request.id:
                return counted
            index = max(index + 1, late)

    def _added(self, name: bytes, index: int, body: bytes) -> tuple[Any, bytes | None]:
        """Adds a part if its index is free; the reply, and the part that has the index."""
        tally = partial(self.client.value_tally, self._tube, name, index, body, ttl=self._ttl_s)
        page = value_parts_page(self._tube, name, str(index), count=1)
        counted: Any = None
        found: Any = None
        with self.client.pipeline() as pipe:
            pipe.value_tally(self._tube, name, index, body, ttl=self._ttl_s)
            pipe.queue(page)
            try:
                counted, found = pipe.execute(raise_on_error=False)
            except Error as err:
                counted = err
        if isinstance(counted, Exception) or isinstance(found, Exception):  # one by one
            counted = self._asked(tally)
            found = self._asked(lambda: self.client.run(page))
        rows = found[1]
        return counted, rows[0][1] if rows else None

    def _complete(self, request: Any, name: bytes) -> None:
        group_id = request.group
        body = maybe_signature(request.chord, app=self.app)
        try:
            results = self._joined(group_id, name)
        except ChordError as exc:
            logger.exception("Chord %r raised: %r", group_id, exc)
            self.chord_error_from_stack(body, exc)
        except Exception as exc:
            logger.exception("Chord %r raised: %r", group_id, exc)
            self.chord_error_from_stack(body, ChordError(f"Join error: {exc!r}"))
        else:
            try:
                body.apply_async((results,), headers={CHORD_HEADER: str(group_id)})
            except Exception as exc:
                logger.exception("Chord callback for %r raised: %r", group_id, exc)
                self.chord_error_from_stack(body, ChordError(f"Callback error: {exc!r}"))
        ends = [self.get_key_for_group(group_id, end) for end in (".s", ".t")]
        self._asked(lambda: self.client.value_drop(self._tube, name, *ends))

    def _joined(self, group_id: str, name: bytes) -> list[Any]:
        """The results of the parts in their order; ChordError for the first that failed."""
        saved = GroupResult.restore(group_id, app=self.app)
        if saved is None:
            return list(self._results_of(name))
        saved.on_ready()
        with allow_join_result():
            found: list[Any] = saved.join_native(
                timeout=self.app.conf.result_chord_join_timeout, propagate=True
            )
        return found

    def _parts_of(self, name: bytes) -> Iterator[bytes]:
        """The parts, late ones last."""
        cursor = "0"
        while True:
            page = value_parts_page(self._tube, name, cursor)
            cursor, rows = self._asked(partial(self.client.run, page))
            for _, part in rows:
                yield part
            if cursor == "0":
                return
            if not rows and int(cursor) < LATE_INDEX:
                cursor = str(LATE_INDEX)

    def _results_of(self, name: bytes) -> Iterator[Any]:
        parts = [self.decode(part) for part in self._parts_of(name)]
        for _, id, state, value in sorted(parts, key=itemgetter(0)):
            if state in states.EXCEPTION_STATES:
                value = self.exception_to_python(value)
            if state in states.PROPAGATE_STATES:
                raise _create_chord_error_with_cause(
                    message=f"Dependency {id} raised {value!r}", original_exc=value
                )
            yield value
