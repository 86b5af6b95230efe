"""Errors: one root, the builtins as second bases, one class per error code."""

from __future__ import annotations

import builtins
import pickle
import re
from pathlib import Path

import pytest

from tuque import errors
from tuque.core.model.errors import (
    NOREPL_LOST,
    NOREPL_REMOVED,
    NOREPL_TIMEOUT,
    Refusal,
)
from tuque.server.replies.errors import core_words

WITHDRAWN = (NOREPL_LOST, NOREPL_REMOVED, NOREPL_TIMEOUT)

CODES = {
    "NOREPL Not enough reachable nodes for the requested replication level": errors.NoReplica,
    "NOREPL Timeout reached before replicating to the requested number of nodes": errors.Withdrawn,
    "FEWCOPIES done here, but not yet on 2 nodes: do not repeat it": errors.FewCopies,
    "NOJOB Job not known in the context of this node.": errors.NoJob,
    "NOREACH Job is not known here, and may be at a node that did not answer: x": errors.NotInReach,
    "NOWORKER no worker of that name is heard here": errors.NoWorker,
    "BADID Invalid Job ID format.": errors.BadId,
    "PAUSED Queue paused in input, try later": errors.Paused,
    "LEAVING This node is leaving the cluster, please connect to a different one": errors.Leaving,
    "CONFLICT another node has the id of this one: stop one of the two": errors.Conflict,
    "OOM command not allowed when used memory > 'maxmemory': let jobs end": errors.OutOfMemory,
    "MAXLEN Queue is already longer than the specified MAXLEN count": errors.MaxLen,
    "NOAUTH Authentication required.": errors.NoAuth,
    "WRONGPASS invalid username-password pair or user is disabled.": errors.WrongPass,
    "ERR invalid password": errors.WrongPass,
    "DENIED not open to the world": errors.Denied,
    "ERR max number of clients reached": errors.MaxClients,
    "QUOTA tenant 'a' adds 2 jobs a second at most: try again in 9 ms": errors.Quota,
    "NOPERM this user has no permissions to run the 'x' command": errors.NoPerm,
    "ACKED the job is done": errors.Acked,
    "NOTDELIVERED Job was not delivered yet, ...": errors.NotDelivered,
    "TOOLATE Half of job TTL already elapsed, ...": errors.TooLate,
    "STALE Run 1.1.02ed31 is over": errors.Stale,
    "ATWORK Job was delivered 0 s ago": errors.AtWork,
    "CANCELLED Job was cancelled: user": errors.Cancelled,
    "DEAD Job is a dead letter in 'q.dead': DEAD REPLAY it": errors.Dead,
    "LOADING Disque is loading the dataset in memory": errors.Loading,
    "MISCONF Errors writing to the AOF file: No space left on device": errors.Misconf,
    "WRONGTUBE not a fifottl tube": errors.WrongTube,
    "FENCED epoch 1 is over": errors.Fenced,
    "NOGROUP there is none": errors.NoGroup,
    "NOBATCH there is none": errors.NoBatch,
    "NOSTAGE there is none": errors.NoStage,
    "NOJOBGROUP tube 't' has no group 'D-1'": errors.NoJobGroup,
    "NOSCHEDULE tube 't' has no schedule 'n'": errors.NoSchedule,
    "TUBEHOME h:1 Tube 't' has its leader there": errors.TubeHome,
    "TUBESAPART tubes 'a' and 'b' of topic 't' ...": errors.TubesApart,
    "NOQUORUM Tube 't': this node reaches 1 of 3 nodes": errors.NoQuorum,
    "READONLY This node is read-only: ...": errors.ReadOnly,
    "ERR syntax error": errors.ReplyError,
    "SOMETHING new": errors.ReplyError,
}


@pytest.mark.parametrize("text", CODES)
def test_each_code_has_its_class(text: str) -> None:
    error = errors.reply_error(text, node="h:1", job_id="D-x")
    assert type(error) is CODES[text]
    assert (str(error), error.node, error.job_id) == (text, "h:1", "D-x")
    if type(error) is errors.ReplyError:
        assert error.code == text.split()[0]


@pytest.mark.parametrize(
    ("ours", "builtin"),
    [
        (errors.Timeout, builtins.TimeoutError),
        (errors.Timeout, builtins.ConnectionError),
        (errors.Closed, builtins.ConnectionError),
        (errors.NoNode, OSError),
        (errors.ConfigError, ValueError),
    ],
)
def test_plain_except_clauses_work(ours: type[errors.Error], builtin: type[Exception]) -> None:
    with pytest.raises(builtin):
        raise ours("no")


ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_have_every_code_and_class() -> None:
    """The table of C9 in docs/commands.md, and the tree of classes in docs/client.md."""
    page = (ROOT / "docs" / "commands.md").read_text()
    table = page.partition("## Error words")[2].partition("- C9.1")[0]
    assert set(errors.REPLY_ERRORS) - set(re.findall(r"`([A-Z]+)`", table)) == set()
    page = (ROOT / "docs" / "client.md").read_text()
    tree = page.partition("    Error\n")[2].partition("## Tubes")[0]
    classes = {kind.__name__ for kind in errors.REPLY_ERRORS.values()}
    assert classes - set(re.findall(r"\w+", tree)) == set()


def test_every_error_has_one_root_and_survives_pickling() -> None:
    kinds = [
        k for k in vars(errors).values() if isinstance(k, type) and k.__module__ == errors.__name__
    ]
    assert len(kinds) > 20
    for kind in kinds:
        error = kind("why", node="h:1", job_id="D-x", retryable=True)
        copy = pickle.loads(pickle.dumps(error))
        assert isinstance(copy, errors.Error)
        assert (type(copy), str(copy), copy.node, copy.job_id, copy.retryable) == (
            kind,
            "why",
            "h:1",
            "D-x",
            True,
        )


def test_the_text_of_an_error_commands_no_terminal() -> None:
    """Jobs, whoever added them, have a part in the texts of errors; `message` has it unchanged."""
    told = "CANCELLED Job was cancelled: \x1b[2J\x9b31m\u202e\udcff \u00e9\u3000\n\tdone"
    error = errors.reply_error(told)
    assert error.message == told
    assert str(error) == (
        "CANCELLED Job was cancelled: \\x1b[2J\\x9b31m\\u202e\\xff \u00e9\u3000\n\tdone"
    )
    error.may_be_done = True
    assert str(error).endswith(f"\tdone ({errors.EARLIER_MAY_BE_DONE})")


@pytest.mark.parametrize(
    ("text", "is_done", "is_repeatable"),
    [
        ("NOREPL Not enough reachable nodes for the requested replication level", False, True),
        ("NOREPL Timeout reached before the job with this DEDUPE key had its copies", False, True),
        ("NOREPL Timeout reached before replicating to the requested number of nodes", True, False),
        ("NOREPL Too few nodes are left for the copies: the job is withdrawn", True, False),
        ("FEWCOPIES all jobs of the topic are added, 1 of 1 with fewer copies", True, False),
    ],
)
def test_too_few_copies_say_whether_it_is_done(
    text: str, is_done: bool, is_repeatable: bool
) -> None:
    """Who follows `retryable` adds nothing twice, and loses nothing."""
    error = errors.reply_error(text)
    assert isinstance(error, errors.NoReplica)
    assert (error.may_be_done, error.retryable, str(error)) == (is_done, is_repeatable, text)


def test_the_texts_of_too_few_copies_are_those_of_the_node() -> None:
    """A node that says another one would have it taken for a refusal that did nothing."""
    sent = [core_words(Refusal(code)).decode() for code in WITHDRAWN]
    assert [type(errors.reply_error(text)) for text in sent] == [errors.Withdrawn] * 3
