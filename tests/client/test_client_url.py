"""URLs: what they hold, what is refused and how, and that no secret is shown."""

from __future__ import annotations

import asyncio
import time

import pytest

from tuque import Client, Retry, aio
from tuque.client.transport.face import greeting
from tuque.client.transport.sockets import dial
from tuque.client.transport.streams import Link
from tuque.client.url import Address, parse, settings, url_of
from tuque.errors import ConfigError, Error


def test_all_parts() -> None:
    found = parse("tuque://me:p%40ss@h1:7001,h2,[::1]:7003/?timeout=2.5&retries=3&name=w1")
    assert found.seeds == (Address("h1", 7001), Address("h2", 7711), Address("::1", 7003))
    assert (found.user, found.password) == ("me", "p@ss")
    assert (found.timeout_s, found.retry, found.name) == (2.5, Retry(attempts=3), "w1")
    assert not found.tls
    assert found.follow


def test_a_login_without_colon_is_a_password() -> None:
    found = parse("tuques://secret@h")
    assert (found.user, found.password, found.tls) == ("", "secret", True)


def test_a_user_without_a_password_logs_in() -> None:
    found = parse("tuque://ann:@h")
    assert [call.args for call in greeting(found)] == [("AUTH", b"ann", b""), ("HELLO",)]
    assert url_of(found, "other", 1) == "tuque://ann:@other:1"
    assert "ann" in found.masked_url
    assert not parse("tuque://h").has_login


def test_unix_socket() -> None:
    found = parse("tuque+unix://:pw@/run/t%20q.sock?connect_timeout=1")
    assert found.seeds == (Address("/run/t q.sock", 0),)
    assert (found.password, found.connect_timeout_s) == ("pw", 1.0)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h:1", "tuque://"),
        ("h:7711", "tuque://"),
        ("tuque://h:0", "1 to 65535"),
        ("tuque://h:seven", "1 to 65535"),
        ("tuque://h:70000", "1 to 65535"),
        ("tuque://", "not a host and port"),
        ("tuque://a,,b", "not a host and port"),
        ("tuque://::1:7711", "brackets"),
        ("tuque://[::1", "not a host and port"),
        ("tuque://h/name", "no path"),
        ("tuque://h/?speed=9", "unknown client setting 'speed'"),
        ("tuque://h/?timeout=soon", "timeout must be a number"),
        ("tuque://h/?timeout=0", "timeout must be more than 0"),
        ("tuque://h/?timeout=nan", "timeout must be more than 0"),
        ("tuque://h/?retries=-1", "retries must be a whole number"),
        ("tuque://h/?max_connections=0", "max_connections must be 1 to 65535"),
        ("tuque://h/?name=two%20words", "name must be printable"),
        ("tuque+unix://socket", "absolute path"),
        ("tuque://h/?follow=maybe", "follow must be yes or no"),
    ],
)
def test_what_is_wrong_is_said(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        parse(url)


def test_a_bad_url_does_not_show_its_password() -> None:
    for url in ("tuque://u:hunter2@h:0", "redis://u:hunter2@h", "tuque://u:hunter2@h/?x=1"):
        with pytest.raises(ConfigError) as caught:
            parse(url)
        assert "hunter2" not in str(caught.value)


def test_environment_and_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUQUE_URL", raising=False)
    assert settings().seeds == (Address("127.0.0.1", 7711),)
    monkeypatch.setenv("TUQUE_URL", "tuque://far:1/?timeout=9")
    assert settings().seeds == (Address("far", 1),)
    assert settings("tuque://near").seeds == (Address("near", 7711),)
    assert settings(timeout=3.0).timeout_s == 3.0
    assert not settings("tuque://near/?follow=no").follow
    assert settings("tuque://near/?follow=no", follow=True).follow
    assert settings().timeout_s == 9.0


@pytest.mark.parametrize("kind", [Client, aio.Client])
def test_repr_masks_secrets(kind: type[Client] | type[aio.Client]) -> None:
    client = kind("tuque://me:hunter2@h1,[::1]:5")
    assert "hunter2" not in repr(client) + repr(client.settings) + str(client.settings)
    assert "tuque://me:***@h1:7711,[::1]:5" in repr(client)


def test_a_host_that_is_no_name_is_not_found() -> None:
    """As any name that nobody knows: bytes of the terminal that are no text, a label too long."""
    for host in ("\udcff\udcfe", "a" * 64, "a..b"):
        address = Address(host, 1)
        with pytest.raises(OSError, match="no name of a host"):
            dial(address, None, 1.0)
        with pytest.raises(Error, match="no name of a host"):
            asyncio.run(Link.open(address, None, time.monotonic() + 5.0))
