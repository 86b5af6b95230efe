"""The fixtures of Dramatiq's tests, with the broker of Tuque."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq import Worker
from dramatiq.rate_limits.backends import StubBackend

from tuque.dramatiq import TuqueBroker, TuqueConsumer, TuqueMessage, TuqueResults

OF_STUB = "reads the queues of the stub"
OF_REDIS = "is about what Redis has"
LEFT_OUT: dict[str, str] = {
    "test_actors_can_be_sent_messages": OF_STUB,
    "test_worker_handles_non_numeric_eta_and_logs_warning": OF_STUB,
    "test_worker_handles_none_eta": OF_STUB,
    "test_redis_unacked_messages_can_be_requeued": OF_REDIS,
    "test_redis_dead_lettered_messages_are_cleaned_up": OF_REDIS,
    "test_redis_broker_can_connect_via_url": OF_REDIS,
    "test_redis_broker_can_connect_via_client": OF_REDIS,
    "test_redis_broker_raises_attribute_error_when_given_an_invalid_attribute": OF_REDIS,
    "test_redis_consumer_ack_can_retry_on_connection_error": OF_REDIS,
    "test_redis_consumer_nack_can_retry_on_connection_error": OF_REDIS,
    "test_redis_consumer_nack_does_not_raise_on_missing_id": OF_REDIS,
    "test_redis_join_race_condition": OF_REDIS,
    "test_redis_messages_can_be_dead_lettered": OF_REDIS,
    "test_redis_messages_belonging_to_missing_actors_are_rejected": OF_REDIS,
    "test_redis_requeues_unhandled_delay_messages_on_shutdown": OF_REDIS,
    "test_redis_requeues_unhandled_messages_on_shutdown": OF_REDIS,
    "test_can_instantiate_brokers_without_middleware": "asks for RabbitMQ",
}


class Kept(TuqueMessage):
    """Keeps its exception, as the messages of Dramatiq's stub do."""

    def clear_exception(self) -> None:
        """A test asks for it."""


class Noting(TuqueConsumer):
    """Keeps what became a dead letter, as Dramatiq's stub does."""

    message_class = Kept

    def nack(self, message: Any) -> None:
        self._broker.dead_letters_by_queue[message.queue_name].append(message)
        super().nack(message)


class Judged(TuqueBroker):
    """With what the stub has for tests: dead letters, and a join that raises."""

    def __init__(self, **options: Any) -> None:
        super().__init__(prefix=f"j{time.monotonic_ns()}.", **options)
        self.fail_fast_default = True
        self.dead_letters_by_queue: dict[str, list[Any]] = defaultdict(list)

    @property
    def dead_letters(self) -> list[Any]:
        return [one for some in self.dead_letters_by_queue.values() for one in some]

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 100) -> Any:
        self._check(queue_name)
        return Noting(self, queue_name, prefetch, timeout)

    def join(
        self, queue_name: str, *, timeout: int | None = None, fail_fast: bool | None = None,
        min_successes: int = 1, interval: int = 100,
    ) -> None:  # fmt: skip
        super().join(queue_name, timeout=timeout)
        if self.fail_fast_default if fail_fast is None else fail_fast:
            for message in self.dead_letters_by_queue[queue_name]:
                raise message._exception or Exception("Message failed with unknown error")


@pytest.fixture(autouse=True)
def _left_out(request: pytest.FixtureRequest) -> None:
    why = LEFT_OUT.get(request.node.originalname or request.node.name)
    if why:
        pytest.skip(why)


@pytest.fixture
def stub_broker() -> Iterator[Judged]:
    broker = Judged()
    broker.emit_after("process_boot")  # as the program of the workers does
    dramatiq.set_broker(broker)
    yield broker
    broker.flush_all()
    broker.close()


@pytest.fixture
def redis_broker(stub_broker: Judged) -> Judged:
    stub_broker.fail_fast_default = False
    return stub_broker


@pytest.fixture
def stub_worker(stub_broker: Judged) -> Iterator[Worker]:
    worker = Worker(stub_broker, worker_timeout=100, worker_threads=32)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def redis_worker(stub_worker: Worker) -> Worker:
    return stub_worker


@pytest.fixture
def result_backend(stub_broker: Judged) -> TuqueResults:
    return TuqueResults(stub_broker.client)


@pytest.fixture
def redis_result_backend(result_backend: TuqueResults) -> TuqueResults:
    return result_backend


@pytest.fixture
def rate_limiter_backend() -> StubBackend:
    """Of Dramatiq: limits are not ours."""
    return StubBackend()
