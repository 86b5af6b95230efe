"""SPEC B1.8 on real nodes: links over TLS, with certificates both ways and no secret."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certificates import Authority, needs_openssl
from lab import RealServer, free_port
from raw_resp import Wire
from tuque.server.bus.handshaking import (
    BEGIN_MAX,
    BEGIN_S,
    Handshaking,
    PendingByHost,
    PendingLink,
)
from tuque.server.config.config import load
from tuque.server.config.kinds import ConfigError
from tuque.server.net.tls_keys import OTHER_CA, TlsKeys
from tuque.wire.bus.bus import head_of
from tuque.wire.bus.card import Card, Hello
from tuque.wire.bus.handshake import IS_TLS, MAGIC
from until import until

pytestmark = needs_openssl
PASSWORD = "a-long-password-of-default"
CARD = Card(b"0123456789" * 4, 1, b"8 bytes.", True, 7711, 17711, "", False)
HELLO = msgspec.msgpack.encode(Hello(MAGIC, 1, 1, CARD, bytes(32)))


class Node:
    """A server whose links speak TLS; without `authority` one whose links do not."""

    def __init__(self, here: Path, authority: Authority | None, cert: str = "", days: int = 30):
        here.mkdir()
        flags: list[object] = ["--cluster-port", free_port()]
        self.cert, self.key, self.cafile = here / "node.pem", here / "node.key", here / "ca.pem"
        if authority is not None:
            self.take(authority, cert or here.name, days)
            flags += ["--tls-cluster", "yes", "--requirepass", PASSWORD]
            flags += ["--tls-cert-file", self.cert, "--tls-key-file", self.key]
            flags += ["--tls-cluster-ca-cert-file", self.cafile]
        self.server = RealServer(here, *map(str, flags), port=free_port()).start()
        self.wire: Wire = self.server.wire()
        if authority is not None:
            assert self.wire("AUTH", PASSWORD) == b"OK"

    def take(self, authority: Authority, name: str, days: int = 30, *also: Authority) -> None:
        """Another certificate in the place of the old one, and those who sign for nodes."""
        for new, place in zip(authority.sign(name, days), (self.cert, self.key), strict=True):
            shutil.copy(new, place)
        beside = self.cafile.with_suffix(".new")
        beside.write_text("".join(one.cafile.read_text() for one in (authority, *also)))
        beside.replace(self.cafile)

    def meet(self, other: Node) -> None:
        """CLUSTER MEET."""
        port, bus_port = other.server.port, other.server.bus_port
        assert self.wire("CLUSTER", "MEET", "127.0.0.1", port, bus_port) == b"OK"

    def told(self) -> dict[str, str]:
        """INFO by name."""
        lines = self.wire("INFO").decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def has_links(self, count: int) -> bool:
        return self.told()["bus_links"] == str(count)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[type[Node]]:
    """Nodes that are ended with the test."""
    with contextlib.ExitStack() as stack:

        class Ended(Node):
            def __init__(self, name: str, *args: Any, **more: Any) -> None:
                super().__init__(tmp_path / name, *args, **more)
                stack.callback(self.server.end)

        yield Ended


def test_three_nodes_without_a_secret(start: type[Node], authority: Authority) -> None:
    """B1.8 With `tls-cluster` all links of a node speak TLS, and both ends show a certificate that
    `tls-cluster-ca-cert-file` vouches for. Such a node needs no secret: B1.7 does not shut its bus.
    """
    nodes = [start(f"node{i}", authority) for i in range(3)]
    nodes[0].meet(nodes[1])
    nodes[0].meet(nodes[2])
    until(lambda: all(node.has_links(2) for node in nodes))
    body = b"x" * 3_000_000  # more than a socket takes at once
    id = nodes[1].wire("ADDJOB", "q", body, 30_000, "REPLICATE", 3, "RETRY", 30)
    assert b"active" in nodes[2].wire("SHOW", id)
    assert nodes[0].wire("GETJOB", "TIMEOUT", 20_000, "FROM", "q") == [[b"q", id, body]]
    for node in nodes:
        told = node.told()
        assert (told["bus_tls"], told["bus_links_tls"], told["bus_sealed"]) == ("1", "2", "0")
        assert (told["cluster_tls"], told["cluster_links_tls"]) == ("yes", "2")
        assert "linked with" in node.server.log() and "over TLSv1.3" in node.server.log()
    strangers(nodes[0], authority)
    assert nodes[0].told()["cluster_known_nodes"] == "3" and nodes[0].has_links(2)


def strangers(node: Node, authority: Authority) -> None:
    """Without a certificate of the authority they hear nothing but TLS."""
    other = Authority(node.server.directory, "other")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    wrong = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    wrong.check_hostname = False
    wrong.verify_mode = ssl.CERT_NONE
    wrong.load_cert_chain(*other.sign("stranger"))
    for context in (trusting, wrong):
        with (
            socket.create_connection(("127.0.0.1", node.server.bus_port), timeout=30) as sock,
            pytest.raises((ssl.SSLError, ConnectionError)),
            context.wrap_socket(sock) as tls,
        ):
            tls.sendall(head_of(HELLO, 0) + HELLO)
            assert tls.recv(100) == b"", "a stranger hears something"
            raise ConnectionResetError
    with socket.create_connection(("127.0.0.1", node.server.bus_port), timeout=30) as sock:
        sock.sendall(head_of(HELLO, 0) + HELLO)
        with contextlib.suppress(ConnectionError):
            while data := sock.recv(4096):
                assert data[:1] == b"\x15"  # an alert
    for text in ("it has no certificate", "is not accepted: ", "it speaks no TLS on its bus"):
        until(lambda text=text: text in node.server.log(), node.server.log)
    with socket.create_connection(("127.0.0.1", node.server.bus_port), timeout=30) as sock:
        assert sock.recv(1) == b""  # within 2 s
    until(lambda: "no TLS handshake within 2 s" in node.server.log())


def test_why_there_is_no_link(start: type[Node], authority: Authority, tmp_path: Path) -> None:
    """B1.8 Both ends log why there is no link. No node with `tls-cluster` links without TLS."""
    node = start("node", authority)
    clear = start("clear", None)
    (tmp_path / "other").mkdir()
    other = start("foreign", Authority(tmp_path / "other"))
    expired = start("expired", authority, days=-1)
    assert "expired/node.pem has ended" in expired.server.log()
    not_shown = "it does not accept this node's certificate: "
    told = [
        (node, clear, "it speaks no TLS on its bus; tls-cluster", IS_TLS),
        (clear, node, IS_TLS, "it speaks no TLS on its bus; tls-cluster"),
        (node, other, "its certificate is not accepted: ", not_shown),
        (expired, node, not_shown + "it has expired", "not accepted: certificate has expired"),
        (node, expired, "not accepted: certificate has expired", not_shown + "it has expired"),
    ]
    for dialer, dialled, here, there in told:
        dialer.meet(dialled)
        until(
            lambda one=dialer, text=here: text in one.told()["cluster_meet_error"],
            lambda one=dialer: one.told()["cluster_meet_error"],
        )
        until(lambda one=dialled, text=there: text in one.server.log(), dialled.server.log)
    assert all(one.has_links(0) for one in (node, clear, other, expired))


def test_strangers_begin_last(authority: Authority) -> None:
    """B1.8 Handshakes that the node dialled, or from a member's address, begin before those of
    strangers
    """
    cert, key = authority.sign("order")
    guests: list[PendingLink] = []
    begun: list[int] = []  # places in `guests`

    def note() -> list[int]:
        for place, guest in enumerate(guests):
            if guest.stream is not None and place not in begun:
                begun.append(place)
        return begun

    def context(is_dialer: bool) -> ssl.SSLContext:
        note()  # those before this one
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if is_dialer else ssl.PROTOCOL_TLS_SERVER)
        found.check_hostname = False
        found.load_cert_chain(cert, key)
        return found

    shaking = Handshaking(context, lambda: 1)
    pairs = [socket.socketpair() for _ in range(9)]
    for mine, _ in pairs:
        mine.setblocking(False)
    guests.append(shaking.begin(pairs[0][0], False, True, "10.0.0.1"))
    guests += [shaking.begin(mine, False, False, "10.0.0.2") for mine, _ in pairs[1:8]]
    guests.append(shaking.begin(pairs[8][0], True, True, "10.0.0.3"))
    for guest in guests[4:8]:
        shaking.end(guest)
    shaking.start()
    until(lambda: len(note()) == 5)
    shaking.close()
    assert begun == [8, 0, 3, 2, 1]
    for mine, theirs in pairs:
        mine.close()
        theirs.close()


def test_a_flood_begins_so_often() -> None:
    """B1.8 Of an address where the node knows no member 5 begin in 100 ms; the address with the
    fewest begun ones is the next.
    """
    strangers = PendingByHost()
    ends = [socket.socket() for _ in range(15)]
    flood = [PendingLink(sock, False, False, "10.0.0.2") for sock in ends[:12]]
    others = [PendingLink(sock, False, False, "10.0.0.3") for sock in ends[12:]]
    for guest in (*flood, *others):
        strangers.add(guest)
    strangers.drop(flood[11])
    begun = []
    while (guest := strangers.take(7.0)) is not None:
        begun.append(guest)
        waits = strangers.patience_s(7.04, 1.0)
        assert waits == (0.0 if len(begun) < 8 else pytest.approx(0.06))
    assert [guest.host[-1] for guest in begun] == list("32323222")
    assert [guest for guest in begun if guest in flood] == flood[10:5:-1], "the newest first"
    assert strangers.all() == flood[:6]
    assert strangers.take(7.09) is None and strangers.take(7.1) is flood[5]
    for guest in flood[:5]:
        strangers.drop(guest)
    assert strangers.waiting == {} and strangers.patience_s(7.1, 1.0) == 1.0
    for sock in ends:
        sock.close()


@pytest.mark.parametrize("is_near", [False, True])
def test_strangers_wait_for_their_turn(authority: Authority, is_near: bool) -> None:
    """B1.8 5 begin in 100 ms; a member's address is not bounded"""
    cert, key = authority.sign("turn")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    shaking = Handshaking(lambda is_dialer: context, lambda: 1)
    pairs = [socket.socketpair() for _ in range(30)]
    for mine, _ in pairs:
        mine.setblocking(False)
    guests = [shaking.begin(mine, False, is_near, "10.0.0.2") for mine, _ in pairs]
    began = time.monotonic()
    shaking.start()
    until(lambda: all(guest.stream is not None for guest in guests))
    took = time.monotonic() - began
    shaking.close()
    assert is_near or took >= (30 // BEGIN_MAX - 1) * BEGIN_S
    for mine, theirs in pairs:
        mine.close()
        theirs.close()


def test_new_certificates_of_another_authority(start: type[Node], authority: Authority) -> None:
    """B1.8 when they have changed, its links end and are dialled again with the new ones"""
    first, second = start("first", authority), start("second", authority)
    first.meet(second)
    until(lambda: first.has_links(1) and second.has_links(1))
    new = Authority(first.server.directory, "new")
    for node in (first, second):
        joined = int(node.told()["bus_joined"])
        node.take(authority, "between", 30, new)
        until(lambda n=node, was=joined: int(n.told()["bus_joined"]) > was)
    for node in (first, second):
        node.take(new, "newer", 30, authority)
        until(lambda n=node: "the certificates have changed" in n.server.log())
    until(lambda: first.has_links(1) and second.has_links(1))
    first.take(new, "newest")  # the old authority is gone: here only the new one counts
    until(lambda: first.has_links(1) and second.has_links(1))
    second.take(authority, "old")
    until(lambda: first.has_links(0) and second.has_links(0))
    second.key.write_text("no key")
    until(lambda: second.told()["tls_certificate_fault"] != "")


def test_a_certificate_that_cannot_work_is_not_taken(
    start: type[Node], authority: Authority, tmp_path: Path
) -> None:
    """X2.2 If the new files cannot be used, the old certificate stays in use"""
    first, second = start("first", authority), start("second", authority)
    first.meet(second)
    until(lambda: first.has_links(1) and second.has_links(1))
    good = authority.sign("first")
    faults = {
        "it has ended": authority.sign("ended", -1),
        "it is not valid yet": authority.sign_for_later("later"),
        "unable to get local issuer certificate": Authority(tmp_path, "other").sign("foreign"),
    }
    for why, files in faults.items():
        for new, place in zip(files, (first.cert, first.key), strict=True):
            shutil.copy(new, place)
        until(lambda why=why: why in first.told()["tls_certificate_fault"])
        told = first.told()
        assert (told["tls_certificate_loads"], told["bus_links"]) == ("1", "1"), why
        until(lambda why=why: why in first.server.log())
        wire = second.wire("CLUSTER", "MEET", "127.0.0.1", first.server.port, first.server.bus_port)
        assert wire == b"OK"
    assert "the certificates have changed" not in first.server.log()
    for new, place in zip(good, (first.cert, first.key), strict=True):
        shutil.copy(new, place)
    until(lambda: first.told()["tls_certificate_loads"] == "2")
    assert first.told()["tls_certificate_fault"] == ""
    until(lambda: first.has_links(1))


def test_an_authority_of_clients_is_none_of_nodes(authority: Authority, tmp_path: Path) -> None:
    """B1.8 Without a secret the start fails if that file is also the `tls-ca-cert-file` of
    clients that show certificates."""
    cert, key = authority.sign("node")
    words = {
        "tls_cluster": "yes",
        "tls_cert_file": str(cert),
        "tls_key_file": str(key),
        "dir": str(tmp_path),
    }
    with pytest.raises(ConfigError, match="since tls-cluster is set"):
        TlsKeys(load(None, {}, words))
    words["tls_cluster_ca_cert_file"] = str(authority.cafile)
    keys = TlsKeys(load(None, {}, words))
    for is_dialer in (True, False):
        assert keys.bus_context(is_dialer).verify_mode == ssl.CERT_REQUIRED
    words |= {"tls_auth_clients": "optional", "tls_ca_cert_file": str(authority.cafile)}
    with pytest.raises(ConfigError) as refused:
        TlsKeys(load(None, {}, words))
    assert refused.value.allowed == OTHER_CA
    words["cluster_secret"] = "kY3vR8wQz1LmN5tXb7cD2fGh4jPs6aEu0oHi9ZyVxWq"
    TlsKeys(load(None, {}, words))
