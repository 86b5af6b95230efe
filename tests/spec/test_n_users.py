"""N1-N5: users, their words, their rights; log-ins, and the users file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pump_box import PumpBox, ask
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


@pytest.fixture
def box(tmp_path: Path) -> Iterator[PumpBox]:
    made = PumpBox(tmp_path)
    yield made
    made.check()
    made.close()


def user(*words: str) -> Account:
    """A user made by these words."""
    account = Account(b"bob")
    apply_words(account, [word.encode() for word in words])
    return account


def test_the_default_user(box: PumpBox) -> None:
    """N1.2 A new connection is `default`, if that user is on and needs no password. Else it must
    log in (C3.4).
    """
    wire = box.connect()
    assert ask(box, wire, "ACL", "WHOAMI") == b"default"
    assert ask(box, wire, "ACL", "LIST") == [b"user default on nopass ~* +@all"]
    assert ask(box, wire, "ACL", "SETUSER", "default", "off") == b"OK"
    assert not box.is_open(wire)
    late = box.connect()
    assert ask(box, late, "PING") == Err("NOAUTH Authentication required.")
    assert str(ask(box, late, "HELLO")).startswith("NOAUTH")


def test_requirepass_is_a_password_of_default(box: PumpBox) -> None:
    """N1.3 `requirepass` is a password of `default`, beside those it has in the table."""
    root = box.connect()
    assert ask(box, root, "ACL", "SETUSER", "default", "resetpass", ">other") == b"OK"
    assert ask(box, root, "CONFIG", "SET", "requirepass", "secret") == b"OK"
    for password in ("secret", "other"):
        wire = box.connect()
        assert str(ask(box, wire, "PING")).startswith("NOAUTH")
        assert ask(box, wire, "AUTH", password) == b"OK"
        assert ask(box, wire, "PING") == b"PONG"
    assert ask(box, box.connect(), "AUTH", "default", "nothing") == Err("ERR invalid password")


def test_a_new_user_may_nothing(box: PumpBox) -> None:
    """N2.2 Every user may use the units of the category connection: they concern the session only.
    A new user has no others.
    """
    root, wire = box.connect(), box.connect()
    assert ask(box, root, "ACL", "SETUSER", "bob", "on", ">pass") == b"OK"
    assert ask(box, wire, "AUTH", "bob", "pass") == b"OK"
    assert ask(box, wire, "PING") == b"PONG"
    assert ask(box, wire, "ACL", "WHOAMI") == b"bob"
    denied = "NOPERM user 'bob' may not use QLEN: it lacks +qlen, or @inspect"
    assert ask(box, wire, "QLEN", "q") == Err(denied)
    assert ask(box, root, "ACL", "SETUSER", "bob", "+qlen") == b"OK"
    denied = "NOPERM user 'bob' has no right to the queue 'q': no pattern of it fits"
    assert ask(box, wire, "QLEN", "q") == Err(denied)
    assert ask(box, root, "ACL", "SETUSER", "bob", "~q") == b"OK"
    assert ask(box, wire, "QLEN", "q") == 0


def test_all_queues_must_match(box: PumpBox) -> None:
    """N2.3 A command runs if its user has the unit and, for each queue and tube that it names, a
    pattern that matches. All must match, else nothing happens. This is checked after the number
    of arguments (C3.4).
    """
    root, wire = box.connect(), box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", "nopass", "+@consume", "+@produce", "~a.*", "~b")
    assert ask(box, wire, "AUTH", "bob", "") == b"OK"
    assert ask(box, root, "ADDJOB", "a.1", "x", 0) is not None
    denied = ask(box, wire, "GETJOB", "NOHANG", "FROM", "a.1", "b", "c")
    assert "the queue 'c'" in str(denied)
    assert ask(box, root, "QLEN", "a.1") == 1
    taken = ask(box, wire, "GETJOB", "NOHANG", "FROM", "a.1", "b")
    assert isinstance(taken, list)
    assert len(taken) == 1
    assert "number of arguments" in str(ask(box, wire, "QLEN"))
    add = ("ADDJOB", "b", "x", 0)
    assert "'c'" in str(ask(box, wire, *add, "DEAD", "c"))
    assert "'c'" in str(ask(box, wire, *add, "HEADERS", 2, "backoff", "v", "k", "v", "DEAD", "c"))
    assert "'c'" in str(ask(box, wire, *add, "HEADERS", "+1", "backoff", "v", "DEAD", "c"))
    assert "'c'" in str(ask(box, wire, *add, "BACKOFF", 1, 2, 0, "DEAD", "c"))
    assert "'c'" in str(ask(box, wire, *add, "ASYNC", "dead", "c"))
    assert not isinstance(ask(box, wire, *add, "DEDUPE", "DEAD", "DEAD", "a.dead"), Err)


def test_ids_are_of_queues(box: PumpBox) -> None:
    """N2.4 A command with ids names the queues of those jobs that the node knows, or knew since its
    start and keeps the outcome of. A command with a group of leases names the queues of the group,
    PUBLISH those of what is staged in the transaction. Of an unknown id nothing is known: who knows
    the id may use it.
    """
    root, wire = box.connect(), box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine")
    assert ask(box, wire, "AUTH", "bob", "") == b"OK"
    id = ask(box, root, "ADDJOB", "theirs", "x", 0)
    assert isinstance(id, bytes)
    url = b"D_" + id[2:].replace(b"-", b"_").replace(b"+", b"-").replace(b"/", b"_")
    for words in (("SHOW", id), ("ACKJOB", id), ("ACKJOB", url), ("NACK", "DELAY", 1, id)):
        said = str(ask(box, wire, *words))
        assert f"the queue of '{words[-1].decode()}'" in said and "theirs" not in said, said
    many = [id[:11] + b"%04d" % i + id[15:] for i in range(2_000)]
    assert f"the queue of '{id.decode()}'" in str(ask(box, wire, "ACKJOB", *many, id))
    assert ask(box, wire, "ACKJOB", *many) == 0
    assert ask(box, root, "QLEN", "theirs") == 1
    kept = ask(box, root, "ADDJOB", "theirs", "x", 0, "KEEP", 100)
    assert ask(box, root, "DONE", kept, "-", "RESULT", "of others") == 1
    for words in (("RESULT", kept), ("WAITJOB", 1, kept), ("CANCEL", kept)):
        assert "the queue of 'D-" in str(ask(box, wire, *words))
    assert ask(box, root, "STAGE", "mine", "a", 60_000, "mine", "x") == 1
    assert ask(box, root, "STAGE", "mine", "a", 60_000, "theirs", "x") == 2
    assert "the queue of 'mine'" in str(ask(box, wire, "PUBLISH", "mine", 1, "mine", "a"))
    assert isinstance(ask(box, root, "LEASE", "OPEN", "g", "me", "mine", "theirs"), (int, list))
    assert "the queue of 'g'" in str(ask(box, wire, "LEASE", "TOUCH", "g", 1))
    assert "the queue of 'g'" in str(ask(box, wire, "LEASE", "OPEN", "g", "me", "mine"))


def test_apps_and_transactions_of_others(box: PumpBox) -> None:
    """N2.8 The app of PUBLISH, and the transaction of STAGE and PUBLISH, need a pattern as queues
    do: who has `~orders.*` can neither publish under the app of others, nor stage in their
    transactions.
    """
    root, wire = box.connect(), box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", "nopass", "+@produce", "~orders.*")
    assert ask(box, wire, "AUTH", "bob", "") == b"OK"
    assert ask(box, root, "STAGE", "pay", "a", 60_000, "pay", "x") == 1
    no_name = "has no right to an app or a transaction of the name 'pay': no pattern of it fits"
    for words in (
        ("STAGE", "pay", "a", 60_000, "orders.x", "x"),
        ("PUBLISH", "pay", 1 << 62, "orders.t"),
        ("PUBLISH", "orders.app", 1, "pay"),
        ("PUBLISH", "orders.app", 1, "ACK", "g", 1, 1, "pay"),
    ):
        assert no_name in str(ask(box, wire, *words)), words
        assert "no pattern" in str(ask(box, root, "ACL", "DRYRUN", "bob", *words)), words
    assert ask(box, root, "PUBLISH", "pay", 1, "pay", "a") == 1
    assert ask(box, wire, "STAGE", "orders.t", "a", 60_000, "orders.x", "x") == 1
    assert ask(box, wire, "PUBLISH", "orders.app", 1, "orders.t", "a") == 1


def test_workers_of_others(box: PumpBox) -> None:
    """N2.4 WORKER HERE, BYE, QUIET and STOP name the queues that the worker of that name has said,
    unless it is lost.
    """
    root, wire = box.connect(), box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine")
    assert ask(box, wire, "AUTH", "bob", "") == b"OK"
    ask(box, root, "WORKER", "HERE", "w", "QUEUES", "mine", "theirs")
    for words in (("HERE", "w"), ("HERE", "w", "QUEUES", "mine"), ("BYE", "w"), ("STOP", "w")):
        said = str(ask(box, wire, "WORKER", *words))
        assert "no right to the queue of 'w'" in said and "theirs" not in said, said
    assert ask(box, wire, "WORKER", "HERE", "w2", "QUEUES", "mine") == b"none"
    assert ask(box, wire, "WORKER", "QUIET", "w2") == b"OK"
    box.server.crew.by_name[b"w"].heard_ms -= LOST_MS
    assert ask(box, wire, "WORKER", "HERE", "w", "QUEUES", "mine") == b"none"


def test_lists_show_what_one_may_see(box: PumpBox) -> None:
    """N2.5 JSCAN, QSCAN, QLIST, HISTORY QUEUES, LEASE LIST, TUBE LIST, STATISTICS and GRANTS,
    WORKER LIST and WORKER DEPLOYS leave out what no pattern matches. INFO leaves out names of
    tubes. DEAD REPLAY without QUEUE leaves out letters of such queues.
    """
    root, wire = box.connect(), box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine*")
    assert ask(box, wire, "AUTH", "bob", "") == b"OK"
    ids = {name: ask(box, root, "ADDJOB", name, "x", 0) for name in ("mine", "theirs")}
    for name in ("mine", "theirs"):
        ask(box, root, "TUBE", "CREATE", f"{name}t", "fifo")
        ask(box, root, "TUBE", "GRANT", f"{name}t", "guest", "CALL")
        ask(box, root, "LEASE", "OPEN", f"{name}-group", "me", name)
        ask(box, root, "WORKER", "HERE", f"{name}-worker", "QUEUES", name, "mine2")
    ask(box, root, "WORKER", "HERE", "other", "QUEUES", "theirs")
    lists = [
        ("JSCAN",), ("JSCAN", "REPLY", "all"), ("QSCAN",), ("QLIST",),
        ("QLIST", "NAMES", "mine", "theirs"), ("HISTORY", "QUEUES"), ("LEASE", "LIST"),
        ("TUBE", "LIST"), ("TUBE", "STATISTICS"), ("TUBE", "GRANTS"),
    ]  # fmt: skip
    for words in lists:
        all_, some = str(ask(box, root, *words)), str(ask(box, wire, *words))
        has = "theirs" in all_ or str(ids["theirs"]) in all_ or words[0] == "HISTORY"
        assert has, words
        assert "theirs" not in some, words
        assert str(ids["theirs"]) not in some, words
        assert "mine" in some or str(ids["mine"]) in some or words[0] == "HISTORY", words
    for name, queues in (("v1", ("mine", "theirs")), ("v2", ("theirs",)), ("v3", ())):
        words = ("QUEUES", *queues) if queues else ()
        ask(box, root, "WORKER", "HERE", f"a-{name}", "APP", name, *words)
    deploys = ask(box, wire, "WORKER", "DEPLOYS")
    assert isinstance(deploys, list)
    assert [row[1:] for row in deploys] == [[b"v1", [b"mine"]], [b"v3", []]]
    workers = str(ask(box, wire, "WORKER", "LIST"))
    assert "mine2" in workers
    assert "b'theirs'" not in workers
    assert "other" not in workers


def test_letters_go_back_where_one_may_see_them(box: PumpBox) -> None:
    """[N2] Letters of two queues in one (N2.5)."""
    root, wire = box.connect(), box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine*")
    assert ask(box, wire, "AUTH", "bob", "") == b"OK"
    for queue in ("mine", "theirs"):
        id = ask(box, root, "ADDJOB", queue, "x", 0, "ATTEMPTS", 1, "DEAD", "mine.dead")
        assert isinstance(id, bytes)
        ask(box, root, "GETJOB", "NOHANG", "FROM", queue)
        started = ask(box, root, "START", id)
        assert isinstance(started, list)
        said = ask(box, root, "FAIL", id, started[0][0], "FINAL")
        assert said == [b"dead", b"mine.dead"], (said, started)
    assert ask(box, root, "QLEN", "mine.dead") == 2
    assert ask(box, wire, "DEAD", "REPLAY", "mine.dead", "ALL") == [b"0", 1, 2]
    assert [ask(box, root, "QLEN", name) for name in ("mine", "theirs")] == [1, 0]
    assert ask(box, wire, "DEAD", "REPLAY", "mine.dead", "QUEUE", "mine", "ALL") == [b"0", 1, 1]


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


def test_all_words_or_none(box: PumpBox) -> None:
    """N3.3 All words apply, or none: `-ERR Error in ACL SETUSER modifier '<word>': <why>`. The
    error does not repeat a password.
    """
    root = box.connect()
    assert ask(box, root, "ACL", "SETUSER", "bob", "on", ">secret", "+addjob") == b"OK"
    before = ask(box, root, "ACL", "LIST")
    told = str(ask(box, root, "ACL", "SETUSER", "bob", "off", "+qlen", "+nothing"))
    assert told.startswith("ERR Error in ACL SETUSER modifier '+nothing': ")
    assert "hidden" not in str(ask(box, root, "ACL", "SETUSER", "bob", "<hidden"))
    assert ask(box, root, "ACL", "LIST") == before
    assert "SETUSER modifier" not in str(ask(box, root, "ACL", "SETUSER", "a b", "on"))


def test_a_change_reaches_open_connections(box: PumpBox) -> None:
    """N3.5 A change applies to open connections at once. If a user is deleted or turned off, its
    connections are closed. If it may do less than before, those of its connections that wait,
    monitor or subscribe are closed.
    """
    root = box.connect()
    words = ("on", "nopass", "+@consume", "+monitor", "+qlen", "~q", "~r")
    ask(box, root, "ACL", "SETUSER", "bob", *words)
    waits, idle, monitors = (box.connect() for _ in range(3))
    for wire in (waits, idle, monitors):
        assert ask(box, wire, "AUTH", "bob", "") == b"OK"
    box.say(waits, encode("GETJOB", "FROM", "q", "r"))
    box.say(monitors, encode("MONITOR"))
    assert ask(box, root, "ACL", "SETUSER", "bob", "+addjob") == b"OK"
    assert box.is_open(waits)
    assert ask(box, root, "ACL", "SETUSER", "bob", "resetkeys", "~q") == b"OK"
    assert not box.is_open(waits)
    assert ask(box, root, "ADDJOB", "r", "x", 0) is not None
    assert ask(box, root, "QLEN", "r") == 1
    assert "'r'" in str(ask(box, idle, "QLEN", "r"))
    assert ask(box, root, "ACL", "DELUSER", "bob", "nobody") == 1
    assert not box.is_open(idle)
    assert "cannot be deleted" in str(ask(box, root, "ACL", "DELUSER", "default"))


def test_log_ins(box: PumpBox) -> None:
    """N4.1 AUTH and HELLO with AUTH name a user, or mean `default`. A user that is unknown or off,
    or a wrong password: `-WRONGPASS no such user, not its password, or the user is off`; of
    `default`: C5.3. The session is then no longer logged in.
    """
    root = box.connect()
    ask(box, root, "ACL", "SETUSER", "bob", "on", ">one", ">two", "+@all", "~*")
    wrong = Err("WRONGPASS no such user, not its password, or the user is off")
    wire = box.connect()
    assert ask(box, wire, "AUTH", "bob", "two") == b"OK"
    assert ask(box, wire, "AUTH", "bob", "three") == wrong
    assert ask(box, wire, "ACL", "WHOAMI") == b"default"
    said = box.say(wire, encode("HELLO", 3, "AUTH", "bob", "one", "SETNAME", "n"))
    assert said.startswith(b"%7")
    assert ask(box, wire, "ACL", "WHOAMI") == b"bob"
    assert ask(box, wire, "RESET") == b"RESET"
    assert ask(box, wire, "ACL", "WHOAMI") == b"default"
    assert ask(box, root, "ACL", "SETUSER", "bob", "<two") == b"OK"
    assert ask(box, wire, "AUTH", "bob", "two") == wrong
    assert ask(box, root, "ACL", "SETUSER", "bob", "off") == b"OK"
    assert ask(box, wire, "AUTH", "bob", "one") == wrong


def test_passwords_are_nowhere(box: PumpBox) -> None:
    """N4.5 Passwords and hashes are not in the log, MONITOR, SLOWLOG or CONFIG GET."""
    root, monitor = box.connect(), box.connect()
    ask(box, root, "CONFIG", "SET", "slowlog-log-slower-than", 0)
    box.say(monitor, encode("MONITOR"))
    ask(box, root, "ACL", "SETUSER", "bob", "on", ">sesame", "<sesame", ">sesame", "~q", "+qlen")
    ask(box, root, "ACL", "DRYRUN", "bob", "AUTH", "sesame")
    ask(box, root, "AUTH", "bob", "sesame")
    ask(box, root, "AUTH", "bob", "sesame2")
    ask(box, root, "HELLO", "AUTH", "bob", "sesame")
    ask(box, root, "CONFIG", "SET", "requirepas", "sesame")
    seen = box.hear(monitor)
    assert b'"ACL" "SETUSER" "bob" "on" "(redacted)"' in seen
    assert b'"~q" "+qlen"' in seen
    for told in (
        seen,
        str(ask(box, root, "SLOWLOG", "GET", 128)),
        str(ask(box, root, "CONFIG", "GET", "*")),
    ):
        assert "sesame" not in str(told)


def test_the_users_file(box: PumpBox, tmp_path: Path) -> None:
    """N5.2 A file that is read later replaces all users, or none if it has a fault: then the users
    stay, and the log says which line is wrong. Without a line for `default` that user is as in
    N1.1.
    """
    path = tmp_path / "users"
    path.write_text("# who\nuser bob on nopass ~q +qlen\n")
    root = box.connect()
    assert "users-file" in str(ask(box, root, "ACL", "LOAD"))
    box.server.acl.path = str(path)
    ask(box, root, "ACL", "SETUSER", "eve", "on")
    assert ask(box, root, "ACL", "LOAD") == b"OK"
    assert ask(box, root, "ACL", "USERS") == [b"default", b"bob"]
    path.write_text("user bob on nopass\nuser bob off\n")
    assert "twice" in str(ask(box, root, "ACL", "LOAD"))
    assert ask(box, root, "ACL", "LIST") == [
        b"user default on nopass ~* +@all",
        b"user bob on nopass ~q +qlen",
    ]
    ask(box, root, "ACL", "SETUSER", "bob", "resetpass", "iproto", ">pw")
    assert ask(box, root, "ACL", "SAVE") == b"OK"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert "pw" not in text
    assert " iproto:" in text
    assert "iproto:" not in str(ask(box, root, "ACL", "LIST"))
    assert ask(box, root, "ACL", "LOAD") == b"OK"
    assert ask(box, box.connect(), "AUTH", "bob", "pw") == b"OK"


def test_a_file_that_is_cut(box: PumpBox, tmp_path: Path) -> None:
    """N5.5 A file may be read while it is written. So a last line without its end is a fault, and
    while `default` must log in, a file that is read later must have a line for `default`: an
    emptied file opens no node.
    """
    path, root = tmp_path / "users", box.connect()
    box.server.acl.path = str(path)
    good = "user default off\nuser root on nopass ~* +@all\n"
    path.write_text(good)
    ask(box, root, "ACL", "SETUSER", "root", "on", "nopass", "~*", "+@all")
    assert ask(box, root, "AUTH", "root", "") == b"OK"
    assert ask(box, root, "ACL", "LOAD") == b"OK"
    stranger = box.connect()
    cuts = [good[:size] for size in range(len(good))]
    cuts.remove("user default off\n")
    for cut in cuts:
        path.write_text(cut)
        assert isinstance(ask(box, root, "ACL", "LOAD"), Err), cut
        assert ask(box, root, "ACL", "USERS") == [b"default", b"root"]
    assert str(ask(box, stranger, "PING")).startswith("NOAUTH")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsersFileError, match="not a regular file"):
        read_users(str(path))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("bob on", "begins with"), ("user", "begins with"), ("user bob on >pw", "hashes, not"),
        ("user bob what", "what"), ("user bob on\nuser bob off", "twice"),
        ("user b\xe9b on", "printable"), ("user bob" + 150_000 * " ~a", "more than 262144 bytes"),
        ("user bob " + 500 * "x", "x" * 128 + r"\.\.\.'"),
    ],
)  # fmt: skip
def test_faults_of_the_users_file(tmp_path: Path, line: str, why: str) -> None:
    """N5.1 `users-file` has one user a line: `user`, its name, words of SETUSER, with hashes
    instead of passwords. A line that begins with `#` is a comment. A file that is missing or has
    a fault stops the start. A line has at most 262,144 bytes, the file 16 MiB.
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
