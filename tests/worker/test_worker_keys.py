"""Keys: bodies and results signed or encrypted (SPEC U8)."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keys_tasks as tasks
import pytest
from worker_lab import Did, StartWorker

from lab import RealServer
from tuque import Client
from tuque.errors import ConfigError, JobFailed, NoResult
from tuque.worker import App, BadBody, Key, Keys, chain, group
from tuque.worker.app.codec import decode, opened
from tuque.worker.app.encryption import (
    BODY,
    NO_LIBRARY,
    OVERHEAD_BYTES,
    PROGRESS,
    RESULT,
    BadSeal,
    Kind,
)
from tuque.worker.pools.execute import Control
from until import until

SECRET = "the-king-has-donkey-ears"
needs_aes = pytest.mark.skipif(
    importlib.util.find_spec("cryptography") is None, reason="needs tuque[encrypt]"
)
KINDS = ["sign", pytest.param("encrypt", marks=needs_aes)]


def made(*ids: str, kind: Kind) -> Keys:
    return Keys(*(Key.make(id, kind) for id in ids))


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_text_is_refused(kind: Kind) -> None:
    """U8.2 What is not under one of its keys, or was changed, is refused: it is FAIL FINAL and
    never runs"""
    keys = made("a", kind=kind)
    sealed = keys.seal(b"text", RESULT, "D-1")
    assert keys.open(sealed, RESULT, "D-1") == b"text"
    for at in range(len(sealed)):
        for bit in range(8):
            broken = sealed[:at] + bytes([sealed[at] ^ 1 << bit]) + sealed[at + 1 :]
            with pytest.raises(BadSeal):
                keys.open(broken, RESULT, "D-1")
    for end in range(len(sealed)):
        with pytest.raises(BadSeal):
            keys.open(sealed[:end], RESULT, "D-1")
    with pytest.raises(BadSeal):
        keys.open(sealed + b"x", RESULT, "D-1")


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_of_its_place(kind: Kind) -> None:
    """U8.3 They are refused for another job, or as another kind."""
    keys = made("a", kind=kind)
    sealed = keys.seal(b"text", RESULT, "D-1")
    for place, id in ((RESULT, "D-2"), (PROGRESS, "D-1"), (BODY, "D-1"), (BODY, "")):
        with pytest.raises(BadSeal):
            keys.open(sealed, place, id)


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_rotated(kind: Kind) -> None:
    """U8.1 The first key seals, each one opens"""
    old, new = Key.make("old", kind), Key.make("new", kind)
    before, between, after = Keys(old), Keys(new, old), Keys(new)
    assert between.open(before.seal(b"x")) == b"x"
    assert after.open(between.seal(b"x")) == b"x"
    with pytest.raises(BadSeal, match="unknown key 'old'"):
        after.open(before.seal(b"x"))
    with pytest.raises(BadSeal, match="old is another one"):
        Keys(Key.make("old", kind)).open(before.seal(b"x"))
    with pytest.raises(ValueError, match="two keys new"):
        Keys(new, new)


@needs_aes
def test_what_is_signed_is_not_taken_for_encrypted() -> None:
    secret = bytes(32)
    signing, hiding = Keys(Key("a", secret, "sign")), Keys(Key("a", secret, "encrypt"))
    with pytest.raises(BadSeal, match="for another kind"):
        hiding.open(signing.seal(b"x"))
    sealed = hiding.seal(b"x" * 100)
    assert sealed != hiding.seal(b"x" * 100)
    assert b"xxx" not in sealed and len(sealed) - 100 <= OVERHEAD_BYTES


def test_a_file_of_keys(tmp_path: Path) -> None:
    """U8.5 a file of keys that others may read is refused"""
    path, key = tmp_path / "keys", Key.make("2026-11", "sign")
    path.write_text(f"# written by hand\n\n{key.line()}\n{Key.make('old', 'sign').line()}\n")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Keys.read(path)
    path.chmod(0o600)
    assert Keys.read(path).open(Keys(key).seal(b"x")) == b"x"
    assert key.secret.hex() not in repr(key) + repr(Keys.read(path))
    for text in ("", "a sign", "a sign xx", f"a hide {'0' * 64}", f"a sign {'0' * 62}"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="keys"):
            Keys.read(path)
    for weak in ("0" * 64, "deadbeef" * 8, b"a sentence of words as a secret.".hex()):
        path.write_text(f"a sign {weak}")
        with pytest.raises(ConfigError, match="line 1: a key that can be guessed"):
            Keys.read(path)


def test_encryption_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("cryptography"):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError) as refused:
        made("a", kind="encrypt")
    assert NO_LIBRARY in str(refused.value)


def test_without_keys_a_sealed_body_is_refused() -> None:
    sealed = made("a", kind="sign").seal(b"{}")
    with pytest.raises(BadBody, match="under a key, and here are no keys"):
        decode(opened(sealed, None))


@pytest.mark.parametrize("kind", KINDS)
def test_progress_leaves_room_for_its_seal(kind: Kind) -> None:
    """U8.3 Progress has at most 4016 bytes."""
    keys, control = made("i" * 32, kind=kind), Control()
    control.spare_bytes = OVERHEAD_BYTES
    data = b"x" * (4096 - control.spare_bytes)
    assert len(data) == 4016
    assert len(keys.seal(data, PROGRESS, "D-1")) <= 4096


@pytest.fixture(params=KINDS)
def keyed(request: pytest.FixtureRequest, tmp_path: Path, node: RealServer) -> Iterator[Path]:
    """A file of keys that the app of this process has, too."""
    path = tmp_path / "keys"
    path.touch(0o600)
    path.write_text(Key.make("one", request.param).line())
    tasks.app.use(node.url)
    tasks.app.keys = Keys.read(path)
    yield path
    tasks.app.keys = None


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[RealServer]:
    """One that keeps all that it is told."""
    directory = tmp_path / "node"
    directory.mkdir()
    with RealServer(directory, "--appendonly", "yes", "--events", "yes") as made:
        yield made


@pytest.mark.usefixtures("own_node")
@pytest.mark.parametrize(
    ("keyed", "pool"),
    [
        ("sign", "thread"),
        pytest.param("encrypt", "process", marks=needs_aes),
        *(
            pytest.param(kind, pool, marks=[pytest.mark.slow, needs_aes])
            for kind, pool in (
                ("sign", "process"),
                ("encrypt", "thread"),
                ("sign", "async"),
                ("encrypt", "async"),
            )
        ),
    ],
    indirect=["keyed"],
)
def test_the_broker_reads_nothing(
    keyed: Path, pool: str, node: RealServer, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U8.4 Under a key that encrypts, the broker gets no texts of exceptions and no tracebacks of
    tasks, only the name of the exception."""
    hides = tasks.app.keys is not None and tasks.app.keys.hides
    handle = tasks.echo.enqueue(SECRET)
    refused = tasks.rejects.enqueue(SECRET)
    many = tasks.raises.enqueue_many([tasks.raises.options(attempts=1).call(SECRET)])
    assert client.show(handle.id).work.headers["tuque-key"] == "one"
    words = ("--pool", pool, "-c", "2", "--keys", str(keyed))
    worker = start_worker(*words, app="keys_tasks:app")
    assert handle.result(60) == SECRET
    assert handle.progress(str) == SECRET
    until(lambda: len(did()) == 4)
    until(lambda: len(list(tasks.app.dead.list("k.dead"))) == 3)
    shown: list[Any] = [client.show(handle.id), client.result(handle.id)]
    for letter in tasks.app.dead.list("k.dead"):
        shown += [letter, client.dead_show(letter.id)]
        assert (SECRET not in letter.reason) == hides
    assert (SECRET in repr(shown)) == (not hides)
    with pytest.raises(JobFailed, match="LookupError" if hides else SECRET):
        many[0].result(60)
    with pytest.raises(JobFailed, match="log of the worker" if hides else SECRET):
        refused.result(60)
    until(lambda: SECRET in worker.text)
    other = App(node.url)
    with pytest.raises(NoResult, match="this App has no keys"):
        other.handle(handle.id).result(60)
    other.keys = made("one", kind="sign")
    with pytest.raises(NoResult, match="is refused: "):
        other.handle(handle.id).progress()
    other.close()
    node.end()
    found = b"".join(path.read_bytes() for path in node.directory.rglob("*") if path.is_file())
    assert b"tuque-key" in found
    assert (SECRET.encode() in found) == (not hides)


@pytest.mark.parametrize(
    ("keyed", "pool"),
    [
        pytest.param("encrypt", "process", marks=needs_aes),
        pytest.param("sign", "process", marks=pytest.mark.slow),
        pytest.param("sign", "thread", marks=pytest.mark.slow),
        pytest.param("encrypt", "thread", marks=[pytest.mark.slow, needs_aes]),
    ],
    indirect=["keyed"],
)
def test_groups_and_chains(keyed: Path, pool: str, start_worker: StartWorker) -> None:
    """U11.3 begins only once the step before is done and its outcome names this job."""
    start_worker("--pool", pool, "-c", "2", "--keys", str(keyed), app="keys_tasks:app")
    many = group([tasks.echo.call(SECRET), tasks.echo.call("b")]).then(tasks.joined)
    assert many.then(tasks.echo).enqueue().result(60) == f"{SECRET} b"
    assert chain(tasks.echo.call(SECRET), tasks.echo).enqueue().result(60) == SECRET


def test_what_is_not_under_the_keys_never_runs(
    keyed: Path, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U8.2 What is not under one of its keys, or was changed, is refused: it is FAIL FINAL"""
    keys, tasks.app.keys = tasks.app.keys, None
    assert keys is not None
    tasks.raises.enqueue("unsigned")
    tasks.app.keys = made("one", kind="sign")
    tasks.raises.enqueue("another key of that id")
    tasks.app.keys = made("two", kind="sign")
    tasks.raises.enqueue("another id")
    tasks.app.keys = keys
    good = tasks.raises.options(queue="aside").enqueue("changed").id
    info = client.show(good)
    body = info.body or b""
    client.addjob("k", body[:-1] + bytes([body[-1] ^ 1]), attempts=5, retry=60)
    client.addjob("k", body[:-1] + bytes([body[-1] ^ 1]))  # without attempts: the worker counts
    start_worker("--keys", str(keyed), app="keys_tasks:app")
    until(lambda: client.qlen("k.dead") == 5)
    reasons = sorted(letter.reason for letter in tasks.app.dead.list("k.dead"))
    assert all("the body is refused: " in reason for reason in reasons), reasons
    assert any("neither signed nor encrypted" in reason for reason in reasons)
    assert any("unknown key 'two'" in reason for reason in reasons)
    bodies = [letter.body for letter in client.getjob("k.dead", count=5)]
    assert bodies.count(body[:-1] + bytes([body[-1] ^ 1])) == 2  # they stay as they were
    assert did() == []


def test_the_steps_that_follow_are_sealed(
    keyed: Path, client: Client, start_worker: StartWorker, did: Did
) -> None:
    """U8.7 A worker with keys refuses a job if its header `tuque-chain` is missing or
    lists other steps, as in U8.2."""
    alone = tasks.echo.options(queue="aside").enqueue("x").id
    step = chain(tasks.echo.options(queue="aside").call("x"), tasks.echo).enqueue().id
    body, with_step = client.show(alone).body or b"", client.show(step).body or b""
    said = {"tuque-task": tasks.echo.name, "tuque-key": "one"}
    for names in (f'["{tasks.rejects.name}"]', f'[{{"g":["{tasks.rejects.name}"]}}]', "["):
        for sealed in (body, with_step):
            headers = {**said, "tuque-chain": names}
            client.addjob("k", sealed, attempts=5, retry=60, headers=headers)
    client.addjob("k", with_step, attempts=5, retry=60, headers=said)
    client.addjob("k", body, headers={**said, "tuque-chain": f'["{tasks.rejects.name}"]'})
    start_worker("--keys", str(keyed), app="keys_tasks:app")
    until(lambda: client.qlen("k.dead") == 8)
    reason = "the header tuque-chain is refused: it is not the one under the seal"
    assert all(reason in letter.reason for letter in tasks.app.dead.list("k.dead"))
    assert did() == []
