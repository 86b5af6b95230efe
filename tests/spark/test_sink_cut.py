"""A connection that breaks in the middle of a chunk: what is sent again, and what that means."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest
from sink_lab import bodies, once_each

from lab import RealServer

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from tuque.spark.sink.writer import writer

ROWS = 1000
END_S = 30.0


class Cutter:
    """Passes connections on; the first one only for so many bytes, and without any answer."""

    def __init__(self, port: int, most: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target = port
        self.most = most
        self.cuts = 0
        self.threads: list[threading.Thread] = []
        self.carried: list[socket.socket] = []
        self.start(self.serve)

    def start(self, target: Callable[..., None], *args: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:  # `end`
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            if self.cuts:
                self.start(self.join, client, server)
                continue
            self.cuts += 1
            left = self.most
            while left and (data := client.recv(min(left, 1 << 16))):
                server.sendall(data)
                left -= len(data)
            server.shutdown(socket.SHUT_WR)
            while server.recv(1 << 16):  # the node has done all that it got
                pass
            server.close()
            client.close()

    def join(self, client: socket.socket, server: socket.socket) -> None:
        """Carry both ways until both ends have said all; only then are the sockets closed."""
        self.carried += [client, server]
        back = self.start(self.carry, server, client)
        self.carry(client, server)
        back.join()
        client.close()
        server.close()

    def carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):  # an end that goes may reset what is on its way
            while data := one.recv(1 << 16):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        """Wakes all threads, then waits until they have closed what they had."""
        for one in (self.listener, *self.carried):  # the writer keeps its connection
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(END_S)
            assert not thread.is_alive()
        self.listener.close()


@pytest.mark.parametrize("mode", ["append", "dedupe", "staged"])
def test_a_chunk_is_sent_again(broker: RealServer, mode: str) -> None:
    cutter = Cutter(broker.port, 30_000)
    columns = {"body": [str(i) for i in range(ROWS)]}
    if mode == "dedupe":
        columns["dedupe_key"] = columns["body"]
    schema = StructType([StructField(name, StringType()) for name in columns])
    options = {"port": str(cutter.port), "queue": "q", "mode": mode, "pipeline": str(ROWS)}
    batch_writer = writer(options, schema, False)
    batch_writer.commit([batch_writer.write(iter([pa.RecordBatch.from_pydict(columns)]))])
    cutter.end()
    assert cutter.cuts == 1
    found = bodies(broker)
    if mode == "append":  # at least once
        assert set(found) == set(once_each(ROWS))
        assert ROWS < sum(found.values()) < 2 * ROWS
    else:
        assert found == once_each(ROWS)
