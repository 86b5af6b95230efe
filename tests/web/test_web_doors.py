"""The files and proxies that the console is started with (SPEC O14, X5)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from web_console import known

import until as real
from certificates import Authority, needs_openssl
from tuque.client.url import parse
from tuque.errors import ConfigError
from tuque.web import login, main
from tuque.web.actions import ActionLog
from tuque.web.login import TRIES, Sessions, UsersFile
from tuque.web.site import Site


def write_users(path: Path, *users: login.User) -> None:
    path.write_text("".join(login.line_of(one) + "\n" for one in users))


def test_the_users_file_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """O14.38 The console follows its `--users` file: it looks before each request whether the file
    has changed. Users that are gone, or have another password or role, are signed out.

    O14.38 While the file has a fault, is missing or names no user, the users stay as they were,
    and the log has the reason.
    """
    path = tmp_path / "users"
    ann = login.made("ann", "admin", "ann's password")
    bob = login.made("bob", "reader", "bob's password")
    write_users(path, ann, bob)
    users = UsersFile(path)
    sessions = Sessions(b"k" * 32, users)
    cookies = [sessions.begin(one, 0.0)[1] for one in (ann, bob)]

    def signed_in() -> list[bool]:
        return [sessions.read(cookie, 1.0) is not None for cookie in cookies]

    assert signed_in() == [True, True]
    write_users(path, bob)
    assert signed_in() == [False, True]
    assert login.checked(users, "ann", "ann's password") is None
    path.write_text("nonsense\n")
    assert signed_in() == [False, True]
    assert login.checked(users, "bob", "bob's password") == bob
    assert "users:1: not name:role" in caplog.text
    write_users(path, ann, login.made("bob", "reader", "another one"))
    assert signed_in() == [True, False]
    path.unlink()
    assert login.checked(users, "bob", "another one") is not None


def site() -> Site:
    return Site(parse("tuque://127.0.0.1:1"), known(), b"s" * 32, ActionLog(None))


def tries(proxies: str, peer: str, *forwarded: str) -> list[int]:
    """The status of a log-in with a wrong password, for each header."""
    config = main.config_of(site(), "127.0.0.1", 0, main.proxies_of(proxies))
    config.load()

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(config.loaded_app, client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://console.test") as http:
            words = {"name": "admin", "password": "wrong"}
            return [
                (
                    await http.post("/login", data=words, headers={"x-forwarded-for": one})
                ).status_code
                for one in forwarded
            ]

    return asyncio.run(ask())


def test_only_named_proxies_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """O14.39 Without `--trusted-proxies` no header changes the address of a user. From an address
    or network that it names the console believes X-Forwarded-For: the last address in it that is no
    trusted proxy is the user's."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    rotated = [f"10.0.0.{number}" for number in range(TRIES + 1)]
    limited = [401] * TRIES + [429]
    free = [401] * (TRIES + 1)
    assert tries("", "127.0.0.1", *rotated) == limited
    assert tries("10.1.0.0/16", "127.0.0.1", *rotated) == limited
    assert tries("10.1.0.0/16, 127.0.0.1", "127.0.0.1", *rotated) == free
    assert tries("10.1.0.0/16", "10.1.2.3", *rotated) == free
    appended = [f"{one}, 10.9.9.9, 10.1.0.7" for one in rotated]
    assert tries("10.1.0.0/16", "10.1.2.3", *appended) == limited
    for wrong in ("*", "proxy.example", "10.1.2.3/8"):
        with pytest.raises(ConfigError, match="--trusted-proxies"):
            main.proxies_of(wrong)


def test_no_file_of_the_console_is_everybodys(tmp_path: Path) -> None:
    """O14.40 The console refuses a file that everybody on its machine can write, and a
    secret that can be guessed (B1.5)."""
    path = tmp_path / "file"
    readers: tuple[tuple[str, Callable[[Path], object]], ...] = (
        ("".join(login.line_of(one) + "\n" for one in known().values()), main.users_of),
        (secrets.token_urlsafe(32), main.secret_of),
        ("", login.ended_of),
        ("", ActionLog),
        ("", lambda path: main.contexts_of(path, path)),
    )
    for text, read in readers:
        path.write_text(text)
        path.chmod(0o606)
        with pytest.raises((ConfigError, OSError), match="everybody on this machine can write it"):
            read(path)


@pytest.mark.parametrize("secret", ["x" * 64, "the secret of our console, long enough", "0" * 33])
def test_a_secret_that_can_be_guessed(tmp_path: Path, secret: str) -> None:
    """B1.5 The files of keys of workers (U8.5) and `--secret-file` of the console (O14.40) are
    judged in the same way."""
    path = tmp_path / "secret"
    path.write_text(secret)
    with pytest.raises(ConfigError, match="can be guessed"):
        main.secret_of(path)
    for drawn in (secrets.token_bytes(32), secrets.token_hex(32).encode()):
        path.write_bytes(b"a" + drawn + b"z")
        assert main.secret_of(path) == b"a" + drawn + b"z"


@contextlib.contextmanager
def served(cert: Path, key: Path) -> Iterator[int]:
    """A console with https; its port."""
    config = main.config_of(site(), "127.0.0.1", 0, [])
    config.load()
    config.ssl = main.serving(main.contexts_of(cert, key))
    server = uvicorn.Server(config)
    listener = main.bound("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        real.until(lambda: server.started, "start")
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)


@needs_openssl
def test_https_takes_a_new_certificate(tmp_path: Path) -> None:
    """X5.3 If one has changed, this connection and later ones use the new files. While these
    cannot be used, what was read before stays in use, and the log has the reason.
    """
    authority = Authority(tmp_path)
    cert, key = authority.sign("console")
    context = ssl.create_default_context(cafile=str(authority.cafile))

    def shown(port: int) -> bytes | None:
        sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        with context.wrap_socket(sock, server_hostname="localhost") as link:
            link.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert link.recv(100).startswith(b"HTTP/1.1 200")
            return link.getpeercert(binary_form=True)

    with served(cert, key) as port:
        first = shown(port)
        old = key.read_bytes()
        key.write_text("nothing")
        assert shown(port) == first
        key.write_bytes(old)
        assert shown(port) == first
        authority.sign("console")
        assert shown(port) not in (first, None)


def test_a_wrong_certificate_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("no certificate")
    with pytest.raises(ConfigError, match="not used"):
        main.contexts_of(path, path)
    with pytest.raises(ConfigError, match="belong together"):
        main.contexts_of(path, None)


def test_passwords_of_users() -> None:
    for weak in ("short", "aaaaaaaaaaaa"):
        with pytest.raises(ConfigError, match="fewer than 8 characters"):
            login.made("ann", "reader", weak)
