"""Who may look, and who may change things (SPEC O14)."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from web_console import PASSWORDS, Console, known
from web_nodes import WebCluster

from tuque.errors import ConfigError
from tuque.web import login
from tuque.web.login import ADMIN_VARIABLE, TRIES, Sessions, made, of_environment
from tuque.web.main import console as program


def test_nobody_sees_a_page_without_signing_in(console: Console) -> None:
    for path in ("/", "/queues", "/dead", "/ask/add", "/find?q=x"):
        reply = console.stranger().get(path)
        assert reply.status_code == 303, path
        assert reply.headers["location"].startswith("/login?to="), path
    assert console.stranger().get("/live").status_code == 401
    assert console.stranger().post("/do/add", data={"queue": "q"}).status_code == 303


def test_every_reply_has_a_strict_policy(console: Console) -> None:
    reader = console.client("reader")
    for reply in (reader.get("/"), reader.get("/login"), reader.get("/no-such-page")):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "<script>" not in reply.text and "style=" not in reply.text


def test_a_form_of_another_host_signs_nobody_in(console: Console) -> None:
    """O14.5 A form is taken only from a page of the console."""
    words = {"name": "admin", "password": PASSWORDS["admin"]}
    for origin in ("https://evil.example", "null"):
        reply = console.stranger().post("/login", data=words, headers={"origin": origin})
        assert (reply.status_code, "set-cookie" in reply.headers) == (403, False), origin
    reply = console.stranger().post("/login", data=words, headers={"origin": console.base})
    assert reply.status_code == 303
    assert console.client().get("/queue/").status_code == 404, "no way to another scheme"


def test_a_reader_changes_nothing(console: Console, cluster: WebCluster) -> None:
    reader = console.client("reader")
    assert reader.get("/ask/add").status_code == 403
    page = reader.get("/queues").text
    token = page[page.index('name="csrf" value="') + 19 :].partition('"')[0]
    words = {"csrf": token, "queue": "reader", "body": "x"}
    assert reader.http.post("/do/add", data=words).status_code == 403
    with cluster[0].client() as client:
        assert client.qlen("reader") == 0


def test_a_form_needs_the_token_of_its_session(console: Console, cluster: WebCluster) -> None:
    admin = console.client()
    words = {"queue": "forged", "body": "x", "retry": "1", "ttl": "10"}
    assert admin.http.post("/do/add", data=words).status_code == 403
    assert admin.http.post("/do/add", data={**words, "csrf": "0" * 64}).status_code == 403
    page = console.client().get("/ask/add").text  # another session of the same user
    token = page[page.index('name="csrf" value="') + 19 :].partition('"')[0]
    assert admin.http.post("/do/add", data={**words, "csrf": token}).status_code == 403
    with cluster[0].client() as client:
        assert client.qlen("forged") == 0


def test_a_form_of_another_place_is_refused(console: Console) -> None:
    admin = console.client()
    page = admin.get("/ask/add").text
    token = page[page.index('name="csrf" value="') + 19 :].partition('"')[0]
    words = {"csrf": token, "queue": "q", "body": "x"}
    for origin in ("http://elsewhere.example", "null"):
        reply = admin.http.post("/do/add", data=words, headers={"origin": origin})
        assert reply.status_code == 403, origin


def test_a_session_that_was_ended_is_over(console: Console) -> None:
    admin = console.client()
    page = admin.get("/").text
    token = page[page.index('name="csrf" value="') + 19 :].partition('"')[0]
    cookie = admin.http.cookies["tuque_console"]
    assert admin.http.post("/logout", data={"csrf": token}).status_code == 303
    again = console.stranger().get("/", cookies={"tuque_console": cookie})
    assert again.status_code == 303


def test_a_cookie_that_was_changed_is_worth_nothing() -> None:
    sessions = Sessions(b"k" * 32, known())
    session, cookie = sessions.begin(known()["reader"], 1000.0)
    assert sessions.read(cookie, 1001.0) == session
    assert sessions.read(cookie, 1000.0 + 13 * 3600) is None
    body, _, signature = cookie.partition(".")
    for forged in (body, f"{body}.", f"{body[:-4]}AAAA.{signature}", f"{body}.{signature[:-1]}0"):
        assert forged == cookie or sessions.read(forged, 1001.0) is None
    assert Sessions(b"o" * 32, known()).read(cookie, 1001.0) is None


def test_a_session_ends_with_what_its_user_may_do() -> None:
    """O14.36 A session ends when its user signs out, 12 hours after the log-in, and when the
    user has another password or role, or is no user any more."""
    users = known()
    admin = users["admin"]
    session, cookie = Sessions(b"k" * 32, users).begin(admin, 1000.0)
    assert Sessions(b"k" * 32, users).read(cookie, 1001.0) == session
    changed = [
        made("admin", "admin", "another password"),
        msgspec.structs.replace(admin, role="reader"),
    ]
    for later in ({"reader": users["reader"]}, *({**users, "admin": one} for one in changed)):
        assert Sessions(b"k" * 32, later).read(cookie, 1001.0) is None


def test_a_session_that_was_ended_is_over_after_a_restart(tmp_path: Path) -> None:
    """O14.36 With `--secret-file` it outlives a restart of the console, and so does its end: the
    ids of ended sessions are in the file of that name with `.ended`."""
    path = tmp_path / "secret.ended"
    sessions = Sessions(b"k" * 32, known(), path)
    session, cookie = sessions.begin(known()["admin"], 1000.0)
    _, other = sessions.begin(known()["admin"], 1000.0)
    sessions.end(session, 1001.0)
    assert path.stat().st_mode & 0o777 == 0o600
    again = Sessions(b"k" * 32, known(), path)
    assert again.read(cookie, 1002.0) is None and again.read(other, 1002.0) is not None
    path.write_text("no line of ours\n")
    with pytest.raises(ConfigError, match="secret.ended, the sessions that were ended"):
        Sessions(b"k" * 32, known(), path)


def test_passwords_of_the_environment_make_the_same_users_again() -> None:
    words = {ADMIN_VARIABLE: "a password"}
    assert of_environment(words) == of_environment(words)
    assert of_environment(words) != of_environment({ADMIN_VARIABLE: "another one"})


def test_an_address_waits_after_wrong_passwords() -> None:
    sessions = Sessions(b"k" * 32, {})
    for second in range(TRIES):
        assert sessions.must_wait_s("10.0.0.9", second) == 0
        sessions.try_one("10.0.0.9", second)
    assert sessions.must_wait_s("10.0.0.9", TRIES) > 50
    assert sessions.must_wait_s("10.0.0.8", TRIES) == 0
    assert sessions.must_wait_s("10.0.0.9", 100) == 0


def test_a_wrong_password_is_refused(console: Console) -> None:
    for name, password in (("admin", "wrong"), ("nobody", PASSWORDS["admin"]), ("", "")):
        words = {"name": name, "password": password}
        reply = console.stranger().post("/login", data=words)
        assert reply.status_code == 401
        assert "tuque_console" not in reply.cookies


def test_signing_in_goes_on_only_here(console: Console) -> None:
    words = {"name": "admin", "password": PASSWORDS["admin"]}
    for to in ("//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example"):
        reply = console.stranger().post("/login", params={"to": to}, data=words)
        assert reply.headers["location"] == "/"
    reply = console.stranger().post("/login", params={"to": "/dead?queue=q"}, data=words)
    assert reply.headers["location"] == "/dead?queue=q"


def test_a_file_of_users(tmp_path: Path) -> None:
    path = tmp_path / "users"
    ann = login.made("ann", "admin", "a long password")
    path.write_text(f"# who may look\n{login.line_of(ann)}\n")
    known = login.read(path)
    assert login.checked(known, "ann", "a long password") == ann
    assert login.checked(known, "ann", "a longer password") is None
    assert login.checked(known, "bob", "a long password") is None
    for wrong in ("ann:admin:plain", "ann:root:scrypt$00$00", "a b:admin:scrypt$00$00", ""):
        path.write_text(wrong + "\n")
        with pytest.raises(ConfigError):
            login.read(path)
    with pytest.raises(ConfigError, match="fewer than 8"):
        login.made("ann", "admin", "short")


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ran = CliRunner().invoke(program, ["--web-port", str(port)])
    assert ran.exit_code == 1
    said = f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --web-port"
    assert said in ran.output
