"""SPEC X on real nodes: ports of TLS, certificates, handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import tarantool

import tuque
from certificates import Authority, needs_openssl
from lab import RealServer, free_port, info, run_server
from tuque import aio
from until import until

pytestmark = needs_openssl


class Place:
    """A node with TLS, and the authority that it trusts."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.cert, self.key = self.authority.sign("node")
        self.port, self.iproto, self.metrics = free_port(), free_port(), free_port()
        self.node = RealServer(directory / "node", *self.flags(), port=free_port())
        (directory / "node").mkdir()

    def flags(self) -> list[str | int]:
        return [
            "--tls-port",
            self.port,
            "--iproto-tls-port",
            self.iproto,
            "--metrics-port",
            self.metrics,
            "--metrics-tls",
            "yes",
            "--tls-cert-file",
            str(self.cert),
            "--tls-key-file",
            str(self.key),
        ]

    def url(self, **query: object) -> str:
        more = "".join(f"&{name}={value}" for name, value in query.items())
        return f"tuques://localhost:{self.port}/?cafile={self.authority.cafile}{more}"

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.cafile))

    def connect(self) -> ssl.SSLSocket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        return self.context().wrap_socket(sock, server_hostname="localhost")

    def seen(self) -> dict[str, str]:
        """INFO after another connection, which makes the node look at the files."""
        with self.connect():
            return self.told()

    def told(self) -> dict[str, str]:
        with contextlib.closing(self.node.wire()) as wire:
            return info(wire, "clients")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("tls"))
    with found.node:
        yield found


def test_the_client_works_over_tls(place: Place) -> None:
    """X5.1 The client speaks TLS to a URL of `tuques://`

    X1.3 A connection with TLS is a client like any other: all rules of C and I hold.

    """
    body = os.urandom(3_000_000)  # more than the socket takes at once, and many records
    with tuque.Client(place.url()) as client:
        added = client.addjob("tls", body)
        [job] = client.getjob("tls", timeout_ms=5000)
        assert (job.id, job.body) == (added, body)
        assert client.ackjob(job) == 1


def test_the_asyncio_client_works_over_tls(place: Place) -> None:
    async def work() -> None:
        async with aio.Client(place.url()) as client:
            added = await client.addjob("tls-aio", b"x" * 100_000)
            [job] = await client.getjob("tls-aio", timeout_ms=5000)
            assert (job.id, len(job.body)) == (added, 100_000)

    asyncio.run(work())


def test_redis_clients_work_over_tls(place: Place) -> None:
    """X1.1 `tls-port` is for RESP clients with TLS"""
    with redis.Redis(port=place.port, ssl=True, ssl_ca_certs=str(place.authority.cafile)) as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(2_000):
            pipeline.execute_command("ADDJOB", "redis-tls", f"{number:0200}", 0)
        assert len(set(pipeline.execute())) == 2_000
        found: Any = client.execute_command("GETJOB", "COUNT", 1000, "FROM", "redis-tls")
        assert [int(row[2]) for row in found] == list(range(1000))


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="needs redis-cli")
def test_redis_cli_works_over_tls(place: Place) -> None:
    words = [
        "redis-cli",
        "--tls",
        "--cacert",
        place.authority.cafile,
        "-p",
        str(place.port),
        "PING",
    ]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "PONG\n"


def test_iproto_over_tls_begins_with_the_greeting(place: Place) -> None:
    sock = socket.create_connection(("127.0.0.1", place.iproto), timeout=30)
    with place.context().wrap_socket(sock, server_hostname="localhost") as link:
        assert link.recv(9) == b"Tarantool"


def test_a_tarantool_client_works_over_tls(place: Place) -> None:
    """X1.1 `iproto-tls-port` for those of IPROTO

    Also for X1.3: the unmodified connector, a body of many
    records."""
    body = "x" * 300_000
    with contextlib.closing(place.node.wire()) as wire:
        assert wire("TUBE", "CREATE", "tls-tube", "fifo", "IFNOTEXISTS") == b"OK"
    files = {"ssl_ca_file": str(place.authority.cafile)}
    where = {"connection_timeout": 60, "socket_timeout": 60, "transport": "ssl", **files}
    link = tarantool.Connection("localhost", place.iproto, **where)
    try:
        (put,) = link.call("queue.tube.tls-tube:put", (body,))
        (taken,) = link.call("queue.tube.tls-tube:take", (10,))
        assert (taken[0], taken[2]) == (put[0], body)
        assert link.call("queue.tube.tls-tube:ack", (taken[0],))[0][1] == "-"
    finally:
        link.close()


def test_metrics_are_served_over_https_only(place: Place) -> None:
    """X1.1 With `metrics-tls` the metrics are served over https only."""
    address = f"localhost:{place.metrics}"
    with urllib.request.urlopen(f"https://{address}/metrics", context=place.context()) as page:
        assert b"tuque_queue_jobs" in page.read()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=30)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_no_older_version_is_spoken(place: Place) -> None:
    """X1.4 A node speaks TLS 1.2 and later"""
    for version, works in ((ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)):
        context = place.context()
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        sock = socket.create_connection(("127.0.0.1", place.port), timeout=30)
        with sock, contextlib.ExitStack() as stack:
            if not works:
                stack.enter_context(pytest.raises(ssl.SSLError))
            link = context.wrap_socket(sock, server_hostname="localhost")
            link.sendall(b"PING\r\n")
            assert link.recv(100) == b"+PONG\r\n"


class Talk:
    """A connection whose records this end makes by hand."""

    def __init__(self, place: Place) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = place.context().wrap_bio(
            self.incoming, self.outgoing, server_hostname="localhost"
        )
        self.sock = socket.create_connection(("127.0.0.1", place.port), timeout=30)
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.sock.sendall(self.outgoing.read())
                self.incoming.write(self.sock.recv(65_536))
            else:
                return

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def read_to_end(self) -> bytes:
        """All that comes until the node closes."""
        while data := self.sock.recv(65_536):
            self.incoming.write(data)
        found = b""
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while part := self.tls.read(65_536):
                found += part
        return found


def test_replies_come_after_the_goodbye_and_the_node_closes(place: Place) -> None:
    """X1.3 A connection with TLS is a client like any other: all rules of C and I hold."""
    with Talk(place) as talk:
        talk.tls.write(b"PING\r\n")
        with contextlib.suppress(ssl.SSLWantReadError):
            talk.tls.unwrap()
        talk.sock.sendall(talk.outgoing.read())  # the command and the goodbye, in one packet
        assert talk.read_to_end() == b"+PONG\r\n"


def test_a_broken_record_ends_its_connection_only(place: Place) -> None:
    """X1.3 A connection with TLS is a client like any other: all rules of C and I hold."""
    with Talk(place) as talk, Talk(place) as other:
        talk.tls.write(b"PING\r\n")
        sent = bytearray(talk.outgoing.read())
        sent[-1] ^= 1
        talk.sock.sendall(sent)
        assert talk.read_to_end() == b""
        other.tls.write(b"QUIT\r\n")
        other.sock.sendall(other.outgoing.read())
        assert other.read_to_end() == b"+OK\r\n"


def test_a_command_that_comes_with_the_handshake_is_answered(place: Place) -> None:
    """X4.4 A thread does the handshakes. The loop gets a connection when its handshake is over."""
    with Talk(place) as talk:
        talk.tls.write(b"PING\r\nQUIT\r\n")
        talk.sock.sendall(talk.outgoing.read())  # with the end of the handshake, in one packet
        assert talk.read_to_end() == b"+PONG\r\n+OK\r\n"


def test_broken_handshakes_end_their_connection_only(place: Place) -> None:
    """X4.3 INFO has tls_handshakes_open, _done, _failed, _late (X4.1) and _crowded (X4.2)."""
    before = int(place.told()["tls_handshakes_failed"])
    with place.connect() as kept:
        for data in (b"PING\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 70_000, b""):
            sock = socket.create_connection(("127.0.0.1", place.port), timeout=30)
            with sock, contextlib.suppress(OSError):
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1000):
                    pass
        until(lambda: int(place.told()["tls_handshakes_failed"]) >= before + 4, lambda: "counted")
        kept.sendall(b"PING\r\n")
        assert kept.recv(100) == b"+PONG\r\n"


def test_half_open_handshakes_make_nobody_wait(place: Place) -> None:
    """X4.2 At most 1024 handshakes are open, 256 of them from one address. A further one of that
    address is closed
    """
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", place.port), 30))
            one.sendall(b"\x16\x03\x01")
        until(lambda: int(place.told()["tls_handshakes_crowded"]) >= 44)
        assert int(place.told()["tls_handshakes_open"]) == 256
        with contextlib.closing(place.node.wire()) as wire:
            assert wire("PING") == b"PONG"
    until(lambda: int(place.told()["tls_handshakes_open"]) == 0)


@pytest.mark.long
def test_new_files_are_taken_without_a_restart(tmp_path: Path) -> None:
    """X2.1 If one has changed, this connection and later ones get the new one; earlier ones
    stay.

    X2.2 If the new files cannot be used, the old certificate stays in use: the log has the
    reason once for each change, INFO until the files are correct.

    """
    place = Place(tmp_path)
    cafile = tmp_path / "clients.pem"
    old, new = (Authority(tmp_path, name) for name in ("old", "new"))
    cafile.write_bytes(old.cafile.read_bytes())
    known, later = old.sign("first"), new.sign("second")

    def lets_in(shown: tuple[Path, Path]) -> bool:
        url = f"{place.url(certfile=shown[0], keyfile=shown[1])}&retries=0"
        with contextlib.suppress(tuque.errors.Error), tuque.Client(url) as client:
            return client.ping() == "PONG"
        return False

    flags = ("--tls-auth-clients", "optional", "--tls-ca-cert-file", str(cafile))
    with place.node.start(*flags), place.connect() as early:
        first = early.getpeercert(binary_form=True)
        assert lets_in(known) and not lets_in(later)
        cafile.write_bytes(new.cafile.read_bytes())
        until(lambda: lets_in(later), place.node.log)
        assert not lets_in(known)
        place.key.write_text("nothing")
        until(lambda: place.seen()["tls_certificate_fault"] != "", place.node.log)
        assert "tls-key-file" in place.told()["tls_certificate_fault"]
        with place.connect() as link:
            assert link.getpeercert(binary_form=True) == first
        assert place.node.log().count("the certificate in use stays") == 1
        loads = int(place.told()["tls_certificate_loads"])
        place.authority.sign("node")
        until(lambda: place.seen()["tls_certificate_fault"] == "", place.node.log)
        assert int(place.told()["tls_certificate_loads"]) > loads
        with place.connect() as link:
            assert link.getpeercert(binary_form=True) != first
        early.sendall(b"PING\r\n")
        assert early.recv(100) == b"+PONG\r\n"


@pytest.mark.long
def test_what_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    """X1.2 Files that are missing or cannot be used stop the start: the error names the option
    and the reason.
    """
    authority = Authority(tmp_path)
    cert, key = authority.sign("node")
    _, other_key = authority.sign("other")
    (tmp_path / "node").mkdir()
    locked, broken = tmp_path / "locked.key", tmp_path / "broken.pem"
    words = ("ec", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked)
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
    broken.write_text("nothing")
    cases: list[tuple[list[object], str]] = [
        ([], "tls-cert-file: ''"),
        (["--tls-cert-file", cert], "tls-key-file: ''"),
        (["--tls-cert-file", tmp_path / "none.pem", "--tls-key-file", key], "No such file"),
        (["--tls-cert-file", cert, "--tls-key-file", other_key], "KEY_VALUES_MISMATCH"),
        (["--tls-cert-file", cert, "--tls-key-file", locked], "without a passphrase"),
        (["--tls-cert-file", broken, "--tls-key-file", key], "tls-cert-file"),
        (
            ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "yes"],
            "tls-ca-cert-file: ''",
        ),
    ]
    for flags, said in cases:
        status, text = run_server(
            tmp_path / "node", "--port", 0, "--tls-port", free_port(), *map(str, flags)
        )
        assert status == 1, text
        assert said in text


def test_clients_must_show_a_certificate(tmp_path: Path) -> None:
    """X3.1 With `tls-auth-clients yes` a client without a certificate that `tls-ca-cert-file`
    vouches for gets no connection
    """
    place = Place(tmp_path)
    cert, key = place.authority.sign("web")
    stranger = Authority(tmp_path, "stranger").sign("thief")
    flags = ["--tls-auth-clients", "yes", "--tls-ca-cert-file", str(place.authority.cafile)]
    with place.node.start(*flags):
        with tuque.Client(place.url(certfile=cert, keyfile=key)) as client:
            assert client.ping() == "PONG"
        for url in (place.url(), place.url(certfile=stranger[0], keyfile=stranger[1])):
            with pytest.raises(tuque.errors.Error), tuque.Client(f"{url}&retries=0") as client:
                client.ping()


def test_the_common_name_is_the_user(tmp_path: Path) -> None:
    """X3.2 if there is such a user and it is on, a RESP client is that user from the beginning,
    without AUTH. Else it is like a client without a certificate.
    """
    place = Place(tmp_path)
    web, other = ({"certfile": c, "keyfile": k} for c, k in map(place.authority.sign, ("web", "x")))
    flags = ["--tls-auth-clients", "yes", "--tls-ca-cert-file", str(place.authority.cafile)]
    with place.node.start(*flags, "--requirepass", "a-long-password-of-default"):
        with contextlib.closing(place.node.wire()) as wire:
            assert wire("AUTH", "a-long-password-of-default") == b"OK"
            assert wire("ACL", "SETUSER", "web", "on", "+@produce", "~orders.*") == b"OK"
        with tuque.Client(place.url(**web)) as client:
            assert client.execute("ACL", "WHOAMI") == b"web"
            client.addjob("orders.new", b"body")
            with pytest.raises(tuque.errors.Error, match="no right to the queue 'mail'"):
                client.addjob("mail", b"body")
        with tuque.Client(place.url(**other)) as client, pytest.raises(tuque.errors.NoAuth):
            client.ping()


def test_a_node_without_a_clear_port(tmp_path: Path) -> None:
    """X1.5 With `port 0` and a `tls-port` it has no clear-text port for clients, and the bus
    listens
    on `tls-port` + 10000
    """
    place = Place(tmp_path)
    place.node.flags += ["--port", "0"]
    place.node.launch()
    until(lambda: "ready to accept" in place.node.log(), place.node.log)
    assert f"ready to accept connections on port {place.port}" in place.node.log()
    with place.node, tuque.Client(place.url()) as client:
        [known] = client.hello().nodes
        assert known.port == place.port
        assert client.info()["bus_port"] == place.port + 10_000
