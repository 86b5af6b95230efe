"""N1-N5: users, their words, their rights; log-ins, and the users file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from raw_resp import Err, encode
from tuque.server.state.workers import LOST_MS
from tuque.server.users.users import Account
from tuque.server.users.users_file import (
    UsersFileError,
    WordError,
    apply_words,
    line_of,
    read_users,
    write_users,
)
from world import World


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


def user(*words: str) -> Account:
    """A user made by these words."""
    account = Account(b"bob")
    apply_words(account, [word.encode() for word in words])
    return account


def test_the_default_user(world: World) -> None:
    """N1.2 A new connection is `default`, if that user is on and needs no password. Else it must
    log in (C3.4).
    """
    wire = world.wire()
    assert wire("ACL", "WHOAMI") == b"default"
    assert wire("ACL", "LIST") == [b"user default on nopass ~* +@all"]
    assert wire("ACL", "SETUSER", "default", "off") == b"OK"
    assert not wire.is_open()
    late = world.wire()
    assert late("PING") == Err("NOAUTH Authentication required.")
    assert str(late("HELLO")).startswith("NOAUTH")


def test_requirepass_is_a_password_of_default(world: World) -> None:
    """N1.3 `requirepass` is a password of `default`, in addition to those it has in the table."""
    root = world.wire()
    assert root("ACL", "SETUSER", "default", "resetpass", ">other") == b"OK"
    assert root("CONFIG", "SET", "requirepass", "secret") == b"OK"
    for password in ("secret", "other"):
        wire = world.wire()
        assert str(wire("PING")).startswith("NOAUTH")
        assert wire("AUTH", password) == b"OK"
        assert wire("PING") == b"PONG"
    assert world.wire()("AUTH", "default", "nothing") == Err("ERR invalid password")


def test_a_new_user_may_nothing(world: World) -> None:
    """N2.2 Every user may use the units of the category connection: they concern the session only.
    A new user has no others.
    """
    root, wire = world.wire(), world.wire()
    assert root("ACL", "SETUSER", "bob", "on", ">pass") == b"OK"
    assert wire("AUTH", "bob", "pass") == b"OK"
    assert wire("PING") == b"PONG"
    assert wire("ACL", "WHOAMI") == b"bob"
    denied = "NOPERM user 'bob' may not use QLEN: it lacks +qlen, or @inspect"
    assert wire("QLEN", "q") == Err(denied)
    assert root("ACL", "SETUSER", "bob", "+qlen") == b"OK"
    denied = "NOPERM user 'bob' has no right to the queue 'q': no pattern of it fits"
    assert wire("QLEN", "q") == Err(denied)
    assert root("ACL", "SETUSER", "bob", "~q") == b"OK"
    assert wire("QLEN", "q") == 0


def test_all_queues_must_match(world: World) -> None:
    """N2.3 A command runs if its user has the unit and, for each queue and tube that it names, a
    pattern that matches. All must match, else nothing happens. This is checked after the number
    of arguments (C3.4).
    """
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", "nopass", "+@consume", "+@produce", "~a.*", "~b")
    assert wire("AUTH", "bob", "") == b"OK"
    assert root("ADDJOB", "a.1", "x", 0) is not None
    denied = wire("GETJOB", "NOHANG", "FROM", "a.1", "b", "c")
    assert "the queue 'c'" in str(denied)
    assert root("QLEN", "a.1") == 1
    taken = wire("GETJOB", "NOHANG", "FROM", "a.1", "b")
    assert isinstance(taken, list)
    assert len(taken) == 1
    assert "number of arguments" in str(wire("QLEN"))
    add = ("ADDJOB", "b", "x", 0)
    assert "'c'" in str(wire(*add, "DEAD", "c"))
    assert "'c'" in str(wire(*add, "HEADERS", 2, "backoff", "v", "k", "v", "DEAD", "c"))
    assert "'c'" in str(wire(*add, "HEADERS", "+1", "backoff", "v", "DEAD", "c"))
    assert "'c'" in str(wire(*add, "BACKOFF", 1, 2, 0, "DEAD", "c"))
    assert "'c'" in str(wire(*add, "ASYNC", "dead", "c"))
    assert not isinstance(wire(*add, "DEDUPE", "DEAD", "DEAD", "a.dead"), Err)


def test_ids_are_of_queues(world: World) -> None:
    """N2.4 with ids, the queues of the jobs that the node knows, or knew since its start and
    keeps the outcome of; with a group of leases, the queues of the group; PUBLISH, those of what
    is staged in the transaction; WORKER HERE, BYE, QUIET and STOP, the queues that the worker of
    that name has, unless it is lost. Of an unknown id nothing is known: who knows the id may use
    it.
    """
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine")
    assert wire("AUTH", "bob", "") == b"OK"
    id = root("ADDJOB", "theirs", "x", 0)
    assert isinstance(id, bytes)
    url = b"D_" + id[2:].replace(b"-", b"_").replace(b"+", b"-").replace(b"/", b"_")
    for words in (("SHOW", id), ("ACKJOB", id), ("ACKJOB", url), ("NACK", "DELAY", 1, id)):
        said = str(wire(*words))
        assert f"the queue of '{words[-1].decode()}'" in said and "theirs" not in said, said
    many = [id[:11] + b"%04d" % i + id[15:] for i in range(2_000)]
    assert f"the queue of '{id.decode()}'" in str(wire("ACKJOB", *many, id))
    assert wire("ACKJOB", *many) == 0
    assert root("QLEN", "theirs") == 1
    kept = root("ADDJOB", "theirs", "x", 0, "KEEP", 100)
    assert root("DONE", kept, "-", "RESULT", "of others") == 1
    for words in (("RESULT", kept), ("WAITJOB", 1, kept), ("CANCEL", kept)):
        assert "the queue of 'D-" in str(wire(*words))
    assert root("STAGE", "mine", "a", 60_000, "mine", "x") == 1
    assert root("STAGE", "mine", "a", 60_000, "theirs", "x") == 2
    assert "the queue of 'mine'" in str(wire("PUBLISH", "mine", 1, "mine", "a"))
    assert isinstance(root("LEASE", "OPEN", "g", "me", "mine", "theirs"), (int, list))
    assert "the queue of 'g'" in str(wire("LEASE", "TOUCH", "g", 1))
    assert "the queue of 'g'" in str(wire("LEASE", "OPEN", "g", "me", "mine"))


def test_apps_and_transactions_of_others(world: World) -> None:
    """N2.8 The app of PUBLISH, and the transaction of STAGE and PUBLISH, need a pattern as
    queues do.
    """
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", "nopass", "+@produce", "~orders.*")
    assert wire("AUTH", "bob", "") == b"OK"
    assert root("STAGE", "pay", "a", 60_000, "pay", "x") == 1
    no_name = "has no right to an app or a transaction of the name 'pay': no pattern of it fits"
    for words in (
        ("STAGE", "pay", "a", 60_000, "orders.x", "x"),
        ("PUBLISH", "pay", 1 << 62, "orders.t"),
        ("PUBLISH", "orders.app", 1, "pay"),
        ("PUBLISH", "orders.app", 1, "ACK", "g", 1, 1, "pay"),
    ):
        assert no_name in str(wire(*words)), words
        assert "no pattern" in str(root("ACL", "DRYRUN", "bob", *words)), words
    assert root("PUBLISH", "pay", 1, "pay", "a") == 1
    assert wire("STAGE", "orders.t", "a", 60_000, "orders.x", "x") == 1
    assert wire("PUBLISH", "orders.app", 1, "orders.t", "a") == 1


def test_workers_of_others(world: World) -> None:
    """N2.4 WORKER HERE, BYE, QUIET and STOP, the queues that the worker of that name has, unless
    it is lost.
    """
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine")
    assert wire("AUTH", "bob", "") == b"OK"
    root("WORKER", "HERE", "w", "QUEUES", "mine", "theirs")
    for words in (("HERE", "w"), ("HERE", "w", "QUEUES", "mine"), ("BYE", "w"), ("STOP", "w")):
        said = str(wire("WORKER", *words))
        assert "no right to the queue of 'w'" in said and "theirs" not in said, said
    assert wire("WORKER", "HERE", "w2", "QUEUES", "mine") == b"none"
    assert wire("WORKER", "QUIET", "w2") == b"OK"
    world.server.workers.by_name[b"w"].heard_ms -= LOST_MS
    assert wire("WORKER", "HERE", "w", "QUEUES", "mine") == b"none"


def test_lists_show_what_one_may_see(world: World) -> None:
    """N2.5 JSCAN, QSCAN, QLIST, HISTORY QUEUES, LEASE LIST, TUBE LIST, STATISTICS and GRANTS,
    WORKER LIST and WORKER DEPLOYS leave out what no pattern matches. INFO leaves out names of
    tubes. DEAD REPLAY without QUEUE leaves out letters of such queues.
    """
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine*")
    assert wire("AUTH", "bob", "") == b"OK"
    ids = {name: root("ADDJOB", name, "x", 0) for name in ("mine", "theirs")}
    for name in ("mine", "theirs"):
        root("TUBE", "CREATE", f"{name}t", "fifo")
        root("TUBE", "GRANT", f"{name}t", "guest", "CALL")
        root("LEASE", "OPEN", f"{name}-group", "me", name)
        root("WORKER", "HERE", f"{name}-worker", "QUEUES", name, "mine2")
    root("WORKER", "HERE", "other", "QUEUES", "theirs")
    lists = [
        ("JSCAN",), ("JSCAN", "REPLY", "all"), ("QSCAN",), ("QLIST",),
        ("QLIST", "NAMES", "mine", "theirs"), ("HISTORY", "QUEUES"), ("LEASE", "LIST"),
        ("TUBE", "LIST"), ("TUBE", "STATISTICS"), ("TUBE", "GRANTS"),
    ]  # fmt: skip
    for words in lists:
        all_, some = str(root(*words)), str(wire(*words))
        has = "theirs" in all_ or str(ids["theirs"]) in all_ or words[0] == "HISTORY"
        assert has, words
        assert "theirs" not in some, words
        assert str(ids["theirs"]) not in some, words
        assert "mine" in some or str(ids["mine"]) in some or words[0] == "HISTORY", words
    for name, queues in (("v1", ("mine", "theirs")), ("v2", ("theirs",)), ("v3", ())):
        words = ("QUEUES", *queues) if queues else ()
        root("WORKER", "HERE", f"a-{name}", "APP", name, *words)
    deploys = wire("WORKER", "DEPLOYS")
    assert isinstance(deploys, list)
    assert [row[1:] for row in deploys] == [[b"v1", [b"mine"]], [b"v3", []]]
    workers = str(wire("WORKER", "LIST"))
    assert "mine2" in workers
    assert "b'theirs'" not in workers
    assert "other" not in workers


def test_letters_go_back_where_one_may_see_them(world: World) -> None:
    """[N2] Letters of two queues in one (N2.5)."""
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine*")
    assert wire("AUTH", "bob", "") == b"OK"
    for queue in ("mine", "theirs"):
        id = root("ADDJOB", queue, "x", 0, "ATTEMPTS", 1, "DEAD", "mine.dead")
        assert isinstance(id, bytes)
        root("GETJOB", "NOHANG", "FROM", queue)
        started = root("START", id)
        assert isinstance(started, list)
        said = root("FAIL", id, started[0][0], "FINAL")
        assert said == [b"dead", b"mine.dead"], (said, started)
    assert root("QLEN", "mine.dead") == 2
    assert wire("DEAD", "REPLAY", "mine.dead", "ALL") == [b"0", 1, 2]
    assert [root("QLEN", name) for name in ("mine", "theirs")] == [1, 0]
    assert wire("DEAD", "REPLAY", "mine.dead", "QUEUE", "mine", "ALL") == [b"0", 1, 1]


def test_letters_of_a_tube_that_one_may_not_see(world: World) -> None:
    """[N2] The queue of its letters has those in the queue alone (N2.5, T48.15)."""
    root, wire = world.wire(), world.wire()
    root("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~t.dead")
    assert wire("AUTH", "bob", "") == b"OK"
    root("TUBE", "CREATE", "t", "tasks")
    id = root("ADDJOB", "t", "x", 0, "ATTEMPTS", 1)
    root("GETJOB", "NOHANG", "FROM", "t")
    started = root("START", id)
    assert isinstance(started, list)
    assert root("FAIL", id, started[0][0], "FINAL") == [b"dead", b"t.dead"]
    assert wire("DEAD", "STAT", "t.dead") == []
    assert wire("DEAD", "PURGE", "t.dead", "ALL") == [b"0", 0, 0]
    assert root("DEAD", "PURGE", "t.dead", "IDS", id) == [b"0", 1, 1]


def test_long_names_match_nothing_but_all() -> None:
    """N2.6 Patterns are globs as in Redis, compared byte by byte. A name of more than 1024 bytes
    matches `*` only.
    """
    bob = user("~a*", "~[x-z]?\\*")
    assert bob.may_see(b"abc")
    assert bob.may_see(b"a\xff\xfe")
    assert bob.may_see(b"y1*")
    assert not bob.may_see(b"y12")
    assert not bob.may_see(b"")
    assert not bob.may_see(b"a" * 1_025)
    assert user("allkeys").may_see(b"a" * 1_025)
    assert user("~\xe9").may_see("é".encode())
    assert not user("~?").may_see("é".encode())


@pytest.mark.parametrize(
    "line",
    [
        "on nopass ~* +@all",
        "off ~a* ~b +@produce -addjob +tube|take",
        "on #scrypt:14:8:1:" + "ab" * 16 + ":" + "cd" * 32 + " ~x +@all -@dangerous",
        "off -@all",
    ],
)
def test_words_make_the_same_user(line: str) -> None:
    """N3.6 LIST shows each user as words that make the same user, without the SHA-1 of N8.1.
    GETUSER has flags, passwords, commands, keys, channels and selectors.
    """
    assert line_of(user(*line.split(" "))) == b"user bob " + line.encode()


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("&x", "channels"), ("allchannels", "channels"), ("(~x)", "another user"),
        ("%R~x", "~pattern"), ("+nothing", "ACL CAT"), ("+@none", "ACL CAT"),
        ("-ping", "every user"), ("-@connection", "every user"), ("what", "ACL HELP"),
        ("#" + "ab" * 32, "SHA-256"), ("#x", "hash"), ("<x", "no such password"),
        ("iproto:zz", "40"), ("~" + "x" * 129, "128"), ("~a b", "spaces"),
    ],
)  # fmt: skip
def test_words_that_are_refused(word: str, why: str) -> None:
    """N3.4 There are no channels, selectors and separate rights to read and to write: `&`, `(` and
    `%` are refused.
    """
    with pytest.raises(WordError, match=why):
        user("on", word)


def test_all_words_or_none(world: World) -> None:
    """N3.3 All words apply, or none: `-ERR Error in ACL SETUSER modifier '<word>': <why>`. The
    error does not repeat a password: of a word with one it has the sign and `...`, of an unknown
    word `...`.
    """
    root = world.wire()
    assert root("ACL", "SETUSER", "bob", "on", ">secret", "+addjob") == b"OK"
    before = root("ACL", "LIST")
    told = str(root("ACL", "SETUSER", "bob", "off", "+qlen", "+nothing"))
    assert told.startswith("ERR Error in ACL SETUSER modifier '+nothing': ")
    for word, shown in (("<hidden", "'<...'"), ("hidden", "'...'")):
        told = str(root("ACL", "SETUSER", "bob", word))
        assert f"modifier {shown}: " in told and "hidden" not in told
    assert root("ACL", "LIST") == before
    assert "SETUSER modifier" not in str(root("ACL", "SETUSER", "a b", "on"))


def test_a_change_reaches_open_connections(world: World) -> None:
    """N3.5 A change applies to open connections at once. If a user is deleted or turned off, its
    connections are closed. If it may do less than before, those of its connections that wait,
    monitor or subscribe are closed.
    """
    root = world.wire()
    words = ("on", "nopass", "+@consume", "+monitor", "+qlen", "~q", "~r")
    root("ACL", "SETUSER", "bob", *words)
    waits, idle, monitors = (world.wire() for _ in range(3))
    for wire in (waits, idle, monitors):
        assert wire("AUTH", "bob", "") == b"OK"
    waits.say(encode("GETJOB", "FROM", "q", "r"))
    monitors.say(encode("MONITOR"))
    assert root("ACL", "SETUSER", "bob", "+addjob") == b"OK"
    assert waits.is_open()
    assert root("ACL", "SETUSER", "bob", "resetkeys", "~q") == b"OK"
    assert not waits.is_open()
    assert root("ADDJOB", "r", "x", 0) is not None
    assert root("QLEN", "r") == 1
    assert "'r'" in str(idle("QLEN", "r"))
    assert root("ACL", "DELUSER", "bob", "nobody") == 1
    assert not idle.is_open()
    assert "cannot be deleted" in str(root("ACL", "DELUSER", "default"))


def test_log_ins(world: World) -> None:
    """N4.1 AUTH and HELLO with AUTH name a user, or mean `default`. A user that is unknown or off,
    or a wrong password: `-WRONGPASS no such user, not its password, or the user is off`; of
    `default`: C5.3. The session is then no longer logged in.
    """
    root = world.wire()
    root("ACL", "SETUSER", "bob", "on", ">one", ">two", "+@all", "~*")
    wrong = Err("WRONGPASS no such user, not its password, or the user is off")
    wire = world.wire()
    assert wire("AUTH", "bob", "two") == b"OK"
    assert wire("AUTH", "bob", "three") == wrong
    assert wire("ACL", "WHOAMI") == b"default"
    said = wire.say(encode("HELLO", 3, "AUTH", "bob", "one", "SETNAME", "n"))
    assert said.startswith(b"%7")
    assert wire("ACL", "WHOAMI") == b"bob"
    assert wire("RESET") == b"RESET"
    assert wire("ACL", "WHOAMI") == b"default"
    assert root("ACL", "SETUSER", "bob", "<two") == b"OK"
    assert wire("AUTH", "bob", "two") == wrong
    assert root("ACL", "SETUSER", "bob", "off") == b"OK"
    assert wire("AUTH", "bob", "one") == wrong


def test_passwords_are_nowhere(world: World) -> None:
    """N4.5 Passwords and hashes are not in the log, MONITOR, SLOWLOG or CONFIG GET, nor in the
    reply to a wrong order: it shows no word that may be one, such as a password whose `>` was
    forgotten.
    """
    root, monitor = world.wire(), world.wire()
    root("CONFIG", "SET", "slowlog-log-slower-than", 0)
    monitor.say(encode("MONITOR"))
    root("ACL", "SETUSER", "bob", "on", ">sesame", "<sesame", ">sesame", "~q", "+qlen")
    root("ACL", "DRYRUN", "bob", "AUTH", "sesame")
    root("AUTH", "bob", "sesame")
    root("AUTH", "bob", "sesame2")
    root("HELLO", "AUTH", "bob", "sesame")
    root("HELLO", 3, "AUT", "bob", "sesame")
    replies = [root("CONFIG", "SET", "requirepas", "sesame")]
    replies.append(root("CONFIG", "SET", "requirepass", "sesame\n"))
    for words in (["sesame"], [" >sesame"], ["!sesame"], ["#sesame"], [">sesame", "nosuch"]):
        replies.append(root("ACL", "SETUSER", "bob", *words))
    replies.append(root("ACL", "SETUSER", ">sesame", "on"))
    assert all(str(reply).startswith("ERR ") for reply in replies)
    seen = monitor.hear()
    assert b'"ACL" "SETUSER" "bob" "on" "(redacted)"' in seen
    assert b'"~q" "+qlen"' in seen
    for told in (
        seen,
        str(root("SLOWLOG", "GET", 128)),
        str(root("CONFIG", "GET", "*")),
        str(replies),
    ):
        assert "sesame" not in str(told)


def test_the_users_file(world: World, tmp_path: Path) -> None:
    """N5.2 A file that is read later replaces all users, or none if it has a fault: then the log
    names the line. Without a line for `default` that user is as in N1.1.
    """
    path = tmp_path / "users"
    path.write_text("# who\nuser bob on nopass ~q +qlen\n")
    root = world.wire()
    assert "users-file" in str(root("ACL", "LOAD"))
    world.server.acl.path = str(path)
    root("ACL", "SETUSER", "eve", "on")
    assert root("ACL", "LOAD") == b"OK"
    assert root("ACL", "USERS") == [b"default", b"bob"]
    path.write_text("user bob on nopass\nuser bob off\n")
    assert "twice" in str(root("ACL", "LOAD"))
    assert root("ACL", "LIST") == [
        b"user default on nopass ~* +@all",
        b"user bob on nopass ~q +qlen",
    ]
    root("ACL", "SETUSER", "bob", "resetpass", "iproto", ">pw")
    assert root("ACL", "SAVE") == b"OK"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "pw" not in text
    assert " iproto:" in text
    assert "iproto:" not in str(root("ACL", "LIST"))
    assert root("ACL", "LOAD") == b"OK"
    assert world.wire()("AUTH", "bob", "pw") == b"OK"


def test_a_file_that_is_cut(world: World, tmp_path: Path) -> None:
    """N5.5 A file may be read while it is written. So a last line without its end is a fault, and
    while `default` must log in, a file that is read later must have a line for `default`: an
    emptied file opens no node.
    """
    path, root = tmp_path / "users", world.wire()
    world.server.acl.path = str(path)
    good = "user default off\nuser root on nopass ~* +@all\n"
    path.write_text(good)
    root("ACL", "SETUSER", "root", "on", "nopass", "~*", "+@all")
    assert root("AUTH", "root", "") == b"OK"
    assert root("ACL", "LOAD") == b"OK"
    stranger = world.wire()
    cuts = [good[:size] for size in range(len(good))]
    cuts.remove("user default off\n")
    for cut in cuts:
        path.write_text(cut)
        assert isinstance(root("ACL", "LOAD"), Err), cut
        assert root("ACL", "USERS") == [b"default", b"root"]
    assert str(stranger("PING")).startswith("NOAUTH")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsersFileError, match="not a regular file"):
        read_users(str(path))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("bob on", "begins with"), ("user", "begins with"), ("user bob on >pw", "hashes, not"),
        ("user bob what", r":1: '\.\.\.': there is no"), ("user bob on\nuser bob off", "twice"),
        ("user b\xe9b on", "printable"), ("user bob" + 150_000 * " ~a", "more than 262144 bytes"),
        ("user bob +" + 500 * "x", "x" * 127 + r"\.\.\.'"),
    ],
)  # fmt: skip
def test_faults_of_the_users_file(tmp_path: Path, line: str, why: str) -> None:
    """N5.1 `users-file` has one user a line: `user`, its name, words of SETUSER, with hashes
    instead of passwords; a line that begins with `#` is a comment. A line has at most 262,144
    bytes, the file 16 MiB.
    """
    path = tmp_path / "users"
    path.write_text(line)
    with pytest.raises(UsersFileError, match=why):
        read_users(str(path))
    with pytest.raises(UsersFileError, match="No such file"):
        read_users(str(tmp_path / "none"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """N5.4 ACL SAVE writes the file whole, with mode 0600. Each node of a cluster has its own
    file.
    """
    path = tmp_path / "users"
    path.write_text("old")
    path.chmod(0o644)
    users = [user("on", "iproto", ">a", ">b", "~q*", "+@consume", "-getjob")]
    write_users(str(path), users)
    assert [line_of(one, False) for one in read_users(str(path))] == [line_of(users[0], False)]
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsersFileError):
        write_users(str(tmp_path / "no" / "users"), users)
