"""The source without Spark around it: offsets, batches, acknowledgement, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lab import RealServer
from tuque import Client
from tuque.spark import nack
from tuque.spark.datasource import TuqueDataSource, register
from tuque.spark.errors import SourceError
from tuque.spark.leases import parts as leases_parts
from tuque.spark.leases.leases import Offset
from tuque.spark.options import source
from tuque.spark.session import TASKS, tasks_at_once
from tuque.spark.source import columns
from tuque.spark.source.reader import LeasePart, LeaseReader, PeekReader

KINDS = {
    "string": StringType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
    "int": IntegerType(),
}
SCHEMA = StructType(
    [
        StructField(name, KINDS[kind])
        for name, kind in (column.split() for column in source.COLUMNS.split(","))
    ]
)


def options(broker: RealServer, streams: bool = True, **more: str) -> source.SourceOptions:
    given = {"port": str(broker.port), "queue": "q", **more}
    if streams:
        given.setdefault("group", "g")
    return source.parse(given, streams, 2)


def reader(broker: RealServer, **more: str) -> LeaseReader:
    return LeaseReader(options(broker, **more), SCHEMA)


def fill(client: Client, count: int) -> None:
    for number in range(count):
        client.addjob("q", str(number))


def seq(offset: Offset) -> int:
    """The number of the last batch, of the one node."""
    ((_, number),) = offset.values()
    return number


def epoch(offset: Offset) -> int:
    ((found, _),) = offset.values()
    return found


def read(reader: LeaseReader, start: Offset, end: Offset) -> list[str]:
    """The bodies of a batch, read by copies as tasks have them."""
    found: list[str] = []
    for part in reader.partitions(start, end):
        copy = pickle.loads(pickle.dumps(reader))
        for batch in copy.read(pickle.loads(pickle.dumps(part))):
            assert batch.schema.equals(to_arrow_schema(SCHEMA, timezone="UTC"))
            found += [body.decode() for body in batch.column("body").to_pylist()]
    return sorted(found, key=int)


def numbers(start: int, end: int) -> list[str]:
    return [str(number) for number in range(start, end)]


def test_types_are_exactly_those_of_spark() -> None:
    types = pa.schema([pa.field(name, kind) for name, kind in columns.TYPES.items()])
    assert types.equals(to_arrow_schema(SCHEMA, timezone="UTC"))


def test_batches_are_acknowledged_when_the_next_is_asked_for(
    broker: RealServer, client: Client
) -> None:
    fill(client, 5)
    stream = reader(broker, maxjobspertrigger="3")
    zero = stream.initialOffset()
    one = stream.latestOffset(zero, stream.getDefaultReadLimit())
    assert one == {client.hello().id: [epoch(one), 1]}
    assert read(stream, zero, one) == read(stream, zero, one) == numbers(0, 3), "a pure read"
    stream.commit(one)
    assert client.info()["registered_jobs"] == 5, "commit(end) is no sign of a logged batch"
    two = stream.latestOffset(one, ReadMaxRows(100))
    assert (seq(two), client.info()["registered_jobs"]) == (2, 2)
    assert read(stream, one, two) == numbers(3, 5)
    assert stream.latestOffset(two, ReadMaxRows(100)) is two, "the same text: no batch"
    assert client.info()["registered_jobs"] == 0, "the last batch too"


def test_batches_are_acknowledged_when_spark_says_commit(
    broker: RealServer, client: Client
) -> None:
    """ackOn=commit: nothing before, and nothing twice."""
    fill(client, 5)
    stream = reader(broker, ackon="commit")
    one = stream.latestOffset(stream.initialOffset(), ReadMaxRows(3))
    two = stream.latestOffset(one, ReadMaxRows(10))
    assert client.info()["registered_jobs"] == 5
    stream.commit(one)
    assert client.info()["registered_jobs"] == 2
    assert read(stream, one, two) == numbers(3, 5)
    stream.commit(two)
    assert client.info()["registered_jobs"] == 0


@pytest.mark.parametrize("offset", [{"epoch": 5, "seq": 1}, {"ids": ["D-1", "D-2"]}])
def test_an_offset_of_another_mode(broker: RealServer, offset: Any) -> None:
    with pytest.raises(SourceError, match="another mode"):
        reader(broker).latestOffset(offset, ReadMaxRows(1))


def test_a_restart_goes_on_with_its_batches(broker: RealServer, client: Client) -> None:
    """From the offset log; also when the broker was killed in between."""
    fill(client, 4)
    stream = reader(broker, maxjobspertrigger="2")
    zero = stream.initialOffset()
    one = stream.latestOffset(zero, stream.getDefaultReadLimit())
    leased = stream.latestOffset(one, ReadMaxRows(2))  # and the driver died before it logged it
    broker.kill()
    broker.start()
    again = reader(broker, maxjobspertrigger="2")
    again.prepareForTriggerAvailableNow()
    assert [place.left for place in again.leases.places.values()] == [2]
    assert again.latestOffset(one, ReadMaxRows(2)) == leased
    assert read(again, one, leased) == numbers(2, 4)
    assert again.latestOffset(leased, ReadMaxRows(2)) is leased
    assert client.info()["registered_jobs"] == 0


@pytest.mark.parametrize("parts", ["1", "2", "5"])
def test_a_restart_with_another_number_of_parts(
    broker: RealServer, client: Client, parts: str
) -> None:
    """All that was leased is read, before it is acknowledged."""
    fill(client, 9)
    stream = reader(broker, numpartitions="3")
    zero = stream.initialOffset()
    one = stream.latestOffset(zero, stream.getDefaultReadLimit())
    again = reader(broker, numpartitions=parts)
    assert read(again, zero, one) == numbers(0, 9)
    assert [batch.attempts for batch in client.lease_info("g").batches] == [1], "looks count not"


def test_a_new_query_takes_the_group_over(broker: RealServer, client: Client) -> None:
    fill(client, 2)
    first, second = reader(broker), reader(broker)
    zero = first.initialOffset()
    one = first.latestOffset(zero, ReadMaxRows(10))
    other = second.latestOffset(zero, ReadMaxRows(10))
    assert read(second, zero, other) == numbers(0, 2)
    (part, *_) = leases_parts.parts_of(second.leases, zero, other)
    with pytest.raises(SourceError, match="is for one read of one running query"):
        first.latestOffset(one, ReadMaxRows(10))
    with pytest.raises(SourceError, match="is for one read of one running query"):
        list(first.read(LeasePart(replace(part, epoch=epoch(one)))))


def test_once_is_refused(broker: RealServer, client: Client) -> None:
    """Spark's trigger(once=True) would read one batch, and leave the rest in silence."""
    fill(client, 3)
    stream = reader(broker)
    with pytest.raises(SourceError, match=r"use trigger\(availableNow=True\)"):
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert client.qlen("q") == 3


def test_available_now_ends_with_what_was_there(broker: RealServer, client: Client) -> None:
    fill(client, 3)
    stream = reader(broker)
    stream.prepareForTriggerAvailableNow()
    fill(client, 3)
    one = stream.latestOffset(stream.initialOffset(), ReadMaxRows(10))
    assert len(read(stream, stream.initialOffset(), one)) == 3
    assert stream.latestOffset(one, ReadMaxRows(10)) is one
    assert client.qlen("q") == 3


def test_available_now_does_not_count_what_is_done_again(
    broker: RealServer, client: Client
) -> None:
    """A batch that Spark has logged, and replays first, is none of the jobs still to come."""
    fill(client, 3)
    stream = reader(broker)
    zero = stream.initialOffset()
    one = stream.latestOffset(zero, ReadMaxRows(3))
    fill(client, 2)
    again = reader(broker)
    again.prepareForTriggerAvailableNow()
    assert read(again, zero, one) == numbers(0, 3)
    fill(client, 2)
    two = again.latestOffset(one, ReadMaxRows(10))
    assert seq(two) == 2
    assert len(read(again, one, two)) == 2
    assert again.latestOffset(two, ReadMaxRows(10)) is two
    assert client.qlen("q") == 2


def test_the_progress_has_the_backlog(broker: RealServer, client: Client) -> None:
    fill(client, 3)
    stream = reader(broker, maxjobspertrigger="1")
    assert stream.reportLatestOffset() is None
    stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    found = stream.reportLatestOffset()
    assert found is not None
    assert (found["backlog"], found["leased"]) == (2, 1)


def test_a_batch_that_the_sink_acknowledged(broker: RealServer, client: Client) -> None:
    """Published and acknowledged in one step, then the driver died and replays it."""
    fill(client, 2)
    zero: Offset = {}
    one = reader(broker).latestOffset(zero, ReadMaxRows(10))
    client.lease_commit("g", epoch(one), seq(one))
    with pytest.raises(SourceError, match="the checkpoint is older than what group 'g' has done"):
        read(reader(broker), zero, one)
    again = reader(broker, ackedby="sink")
    assert read(again, zero, one) == []
    assert again.latestOffset(one, ReadMaxRows(10)) is one


@pytest.mark.parametrize("fails", [True, False])
def test_jobs_that_others_had(broker: RealServer, client: Client, fails: bool) -> None:
    fill(client, 2)
    stream = reader(broker, failondataloss=str(fails))
    zero = stream.initialOffset()
    one = stream.latestOffset(zero, ReadMaxRows(10))
    (first, *_) = (job for job in client.jscan(queue="q", full=True) if job.body == b"0")
    client.ackjob(first.id)
    if fails:
        with pytest.raises(SourceError, match="failOnDataLoss"):
            read(stream, zero, one)
    else:
        assert read(stream, zero, one) == ["1"]


def test_a_look_changes_nothing(broker: RealServer, client: Client) -> None:
    fill(client, 3)
    (job,) = client.getjob("q")
    client.nack(job.id)
    client.getjob("q")
    for states, expected in (("queued", 2), ("queued,active", 3)):
        look = PeekReader(options(broker, streams=False, states=states), SCHEMA)
        (part,) = look.partitions()
        rows = [row for batch in look.read(part) for row in batch.to_pylist()]
        assert len(rows) == expected
        assert all(row["lease"] is None for row in rows)
        assert {row["deliveries"] for row in rows} <= {0, 1, 2}
    assert client.qlen("q") == 2


def test_a_look_at_queues_whose_names_are_not_utf_8(broker: RealServer, client: Client) -> None:
    r"""H2.5 A name that is not UTF-8 is shown with `\xff` for a byte that is none, in events,
    tables, the report, rows of Spark, `--where`, and in what all commands print."""
    for queue in (b"*", b"bin\xff\xfe"):
        client.addjob(queue, "x")
    for queue, names in (("*", ["*", r"bin\xff\xfe"]), (r"\*", ["*"])):
        look = PeekReader(options(broker, streams=False, queue=queue), SCHEMA)
        rows = [row for part in look.partitions() for b in look.read(part) for row in b.to_pylist()]
        assert sorted(row["queue"] for row in rows) == names


def test_a_look_at_all_queues(broker: RealServer, client: Client) -> None:
    fill(client, 2)
    client.addjob("other", "2")
    look = PeekReader(options(broker, streams=False, queue="*"), SCHEMA)
    rows = [row for part in look.partitions() for b in look.read(part) for row in b.to_pylist()]
    assert sorted((row["queue"], row["body"]) for row in rows) == [
        ("other", b"2"),
        ("q", b"0"),
        ("q", b"1"),
    ]


def test_rows_are_given_back_as_failed(broker: RealServer, client: Client) -> None:
    fill(client, 3)
    stream = reader(broker)
    zero = stream.initialOffset()
    one = stream.latestOffset(zero, ReadMaxRows(10))
    copies = [b for part in stream.partitions(zero, one) for b in stream.read(part)]
    rows = [row for batch in copies for row in batch.to_pylist() if row["body"] != b"1"]
    assert nack(f"tuque://127.0.0.1:{broker.port}", rows) == 2
    assert (client.qlen("q"), client.info()["registered_jobs"]) == (2, 3)
    client.lease_commit("g", epoch(one), seq(one))
    assert client.info()["registered_jobs"] == 2, "what failed is not acknowledged"
    with pytest.raises(SourceError, match="lease"):
        nack(f"tuque://127.0.0.1:{broker.port}", [{"id": rows[0]["id"], "lease": None}])
    with pytest.raises(SourceError, match="columns id, lease; the rows have no lease"):
        nack(f"tuque://127.0.0.1:{broker.port}", [{"id": rows[0]["id"]}])
    with pytest.raises(SourceError, match="id, lease, node; the rows have no node"):
        nack(f"tuque://a,127.0.0.1:{broker.port}", [{"id": "D-", "lease": "g/1/1"}])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "group"),
        ({"group": "g", "queue": " , "}, "queue"),
        ({"group": "g", "qeue": "q"}, "did you mean queue"),
        ({"group": "g", "maxjobspertriger": "9"}, "did you mean maxJobsPerTrigger"),
        ({"group": "g", "queue": "*"}, "names its queues"),
        ({"group": "g", "mode": "peek"}, "lease"),
        ({"group": "g", "numPartitions": "0"}, "numPartitions"),
        ({"group": "g", "maxBytesPerTrigger": "many"}, "maxBytesPerTrigger"),
        ({"group": "g", "leaseTimeout": "5 minutes"}, "leaseTimeout"),
        ({"group": "g", "heartbeat": "10m"}, "heartbeat"),
        ({"group": "g", "ackedBy": "me"}, "ackedBy"),
        ({"group": "g", "states": "open"}, "states"),
        ({"group": "g", "url": "tuque://a,b", "ackedBy": "sink"}, "one node"),
        ({"group": "g", "nodes": "cluster", "ackedBy": "sink"}, "one node"),
        ({"mode": "ids", "url": "tuque://a,b"}, "one node"),
        ({"mode": "ids", "group": "g"}, "group goes with mode=lease"),
        ({"mode": "ids", "maxJobsPerTrigger": "50000"}, "maxJobsPerTrigger"),
        ({"group": "g", "limit": "5"}, "limit goes with mode=peek"),
        ({"group": "g", "nodes": "all"}, "nodes must be given or cluster"),
        ({"group": "g", "ackOn": "read"}, "ackOn must be next or commit"),
        ({"group": "g", "path": "q"}, "no path"),
        ({"group": "g", "queue": "q,r", "maxBatchAttempts": "3", "deadLetterQueue": "r"}, "itself"),
        ({"group": "g", "failOnDataLoss": "maybe"}, "failOnDataLoss"),
    ],
)
def test_wrong_options_are_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(SourceError, match=named):
        source.parse({"queue": "q", **given}, True, 2)


def test_wrong_options_are_told_by_what_spark_passes_on() -> None:
    """Spark replaces an error of streamReader() by UnboundLocalError, those of methods not."""
    found = TuqueDataSource({"queue": "q", "group": "g", "qeue": "q"}).streamReader(SCHEMA)
    asked = (
        found.getDefaultReadLimit,
        found.prepareForTriggerAvailableNow,
        found.initialOffset,
        found.reportLatestOffset,
        lambda: found.latestOffset({}, ReadMaxRows(1)),
        lambda: found.partitions({}, {}),
        lambda: found.commit({}),
    )
    for ask in asked:
        with pytest.raises(SourceError, match="did you mean queue"):
            ask()
    found.stop()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"group": "g"}, "group goes with mode=lease, not peek"),
        ({"numPartitions": "3"}, "numPartitions goes with mode=lease or ids"),
        ({"mode": "lease"}, "read\\(\\) looks"),
        ({"limit": "0"}, "limit"),
        ({"minAge": "old"}, "minAge"),
        ({"states": "open"}, "states has 'open'"),
        ({"queue": "*,q"}, "is used alone"),
    ],
)
def test_wrong_options_of_a_look_are_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(SourceError, match=named):
        source.parse({"queue": "q", **given}, False, 2)


def test_parts_are_as_many_as_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """numPartitions is the parallelism of the session that the source is registered with, else
    of the session() that this process runs in."""
    known: list[Any] = []
    shown: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(defaultParallelism=7),
        dataSource=SimpleNamespace(register=known.append),
        createDataFrame=lambda *_: None,
    )
    register(shown)
    sent = cloudpickle.loads(cloudpickle.dumps(known[0]))
    given = {"queue": "q", "group": "g"}
    assert sent(given).streamReader(SCHEMA).options.partitions == 7
    assert sent({**given, "numPartitions": "3"}).streamReader(SCHEMA).options.partitions == 3
    assert TuqueDataSource(given).streamReader(SCHEMA).options.partitions == 2
    found = {master: tasks_at_once(master) for master in ("local", "local[4, 2]", "spark://h:1")}
    assert found == {"local": 1, "local[4, 2]": 4, "spark://h:1": 0}
    monkeypatch.setenv(TASKS, "5")
    assert TuqueDataSource(given).streamReader(SCHEMA).options.partitions == 5


def test_a_wrong_column_is_named() -> None:
    columns.check_schema(StructType([StructField("body", BinaryType())]))
    for name, kind in (("body", StringType()), ("size", IntegerType())):
        with pytest.raises(SourceError, match=f"column {name}"):
            columns.check_schema(StructType([StructField(name, kind)]))
