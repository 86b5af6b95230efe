"""The errors Tuque raises: one root, typed by cause, so that a caller never compares strings.

    Error
     +- Unavailable          the broker cannot do it now; also some kinds of ReplyError
     |   +- ConnectionError  also the builtin ConnectionError
     |       +- Timeout      also the builtin TimeoutError
     |       +- Closed       the node, or this side, closed the connection
     |       +- NoNode       none of the known nodes could be reached
     +- ReplyError           the node answered with an error; one class per error code
     +- ProtocolError        the other side does not speak RESP, or answers what nobody asked
     +- EnqueueFailed        some of many jobs were not added
     +- NoResult, ResultTimeout, JobCancelled, JobFailed   why a job has no result
     +- ConfigError          a setting is wrong; also the builtin ValueError

This module imports nothing, so that every layer may import it.
"""

from __future__ import annotations

import builtins
import typing

_HARMLESS = "\n\t\xa0\u3000\u200c\u200d"  # not printable to Python: spaces, joiners of letters
MAY_BE_DONE = "no answer came: it may have been done"
EARLIER_MAY_BE_DONE = "no answer came to an earlier try: it may have been done"

# [T17.3] The address of a tube's leader, and the tube: nodes write it, `TubeHome` parses it.
TUBE_HOME = "TUBEHOME %s Tube '%s' has its leader there"
_BEFORE_HOME, _BEFORE_TUBE, _BEHIND_TUBE = TUBE_HOME.split("%s")


def _visible(char: str) -> str:
    if char.isprintable() or char in _HARMLESS:
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as `visible` of logtext shows it
        return f"\\x{code & 0xFF:02x}"
    return char.encode("unicode_escape").decode()


class Error(Exception):
    """Root of all errors of Tuque.

    `node` is "host:port" of the node concerned ("" when there is none), `job_id` the job of a call
    about one job, `retryable` says that sending the call again is safe and may succeed.
    `may_be_done` says that it may be done all the same: the call was sent and not answered, or the
    node says that it is done in part.
    """

    retryable: bool = False
    may_be_done: bool = False
    _says_so: bool = False  # the text itself says that it may be done
    _unsure: str = MAY_BE_DONE  # what says it else
    node: str = ""
    job_id: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        node: str = "",
        job_id: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.node = node
        self.job_id = job_id
        if retryable is not None:
            self.retryable = retryable

    @property
    def message(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        """The message; what in it could command a terminal is escaped, since jobs give reasons."""
        is_told = self._says_so or not self.may_be_done
        text = self.message if is_told else f"{self.message} ({self._unsure})"
        return text if text.isprintable() else "".join([_visible(char) for char in text])


class Unavailable(Error):
    """The state of the broker or of a queue is the reason: later it may be another one.

    No node is reached, or too few; a tube has no leader, a queue is paused or full.
    """


class ConnectionError(Unavailable, builtins.ConnectionError):
    """A connection failed below the protocol."""


class Timeout(ConnectionError, builtins.TimeoutError):
    """A call ran out of time; unless it only reads, it may have been executed."""


class Closed(ConnectionError):
    """The connection ended before the reply came, or the client is closed."""


class NoNode(ConnectionError):
    """No node could be reached; nothing was sent, unless an earlier try was (`may_be_done`)."""

    retryable = True
    _unsure = EARLIER_MAY_BE_DONE


class ReplyError(Error):
    """A node refused a call; `code` is the first word of its reply."""

    code: str = "ERR"
    advice: str = ""  # what to do, for people; "": the text says it
    _unsure = EARLIER_MAY_BE_DONE


class NoReplica(ReplyError, Unavailable):
    """Too few nodes can take copies: nothing was done. Its subclasses say what was."""

    code = "NOREPL"
    retryable = True
    advice = "too few nodes could take a copy in time: ask for a smaller REPLICATE or wait longer"


class Withdrawn(NoReplica):
    """The copies of the job were not made in time, and it is deleted again.

    A node that is away may have a copy, and deliver it, before it learns that.
    """

    retryable = False
    may_be_done = True
    _says_so = True


class FewCopies(NoReplica):
    """It is done, but on fewer nodes than asked for: do not do it again."""

    code = "FEWCOPIES"
    retryable = False
    may_be_done = True
    advice = "it is done, on fewer nodes than asked for: do not repeat it"
    _says_so = True


class NoJob(ReplyError):
    """This node does not know the job."""

    code = "NOJOB"
    advice = "the job is not known here: done, expired, or on another node"


class NotInReach(ReplyError, Unavailable):
    """No node that answered knows the job, or has its result, and a node that did not answer may.

    `may_be_done`, of a CANCEL: that node has got it, and may still do it.
    """

    code = "NOREACH"
    retryable = True
    _says_so = True


class NoWorker(ReplyError):
    """No worker of that name is alive and announced itself to this node."""

    code = "NOWORKER"


class BadId(ReplyError):
    """The text is not a job id."""

    code = "BADID"
    advice = "an id is 40 bytes and starts with D- or D_; ADDJOB and GETJOB give it"


class Paused(ReplyError, Unavailable):
    """The queue takes no jobs at present."""

    code = "PAUSED"
    retryable = True
    advice = "the queue is paused: `PAUSE <queue> none` opens it"


class Leaving(ReplyError, Unavailable):
    """The node is about to leave the cluster: use another one."""

    code = "LEAVING"
    retryable = True
    advice = "this node is leaving its cluster: use another one"


class Conflict(ReplyError, Unavailable):
    """Another node has the id of the node, which does nothing until that is over: use another."""

    code = "CONFLICT"
    retryable = True
    advice = "another node has this node's id, from a copied directory: stop one of the two"


class OutOfMemory(ReplyError, Unavailable):
    """The node has no memory, or no room on its disk, left for new jobs."""

    code = "OOM"
    retryable = True
    advice = "the node is out of memory: acknowledge or delete jobs, or raise maxmemory"


class DiskFull(OutOfMemory):
    """The disk of the node's journal is nearly full: it takes no new jobs."""

    code = "DISKFULL"
    advice = "the node's disk is nearly full: acknowledge jobs, free space, or use another node"


class MaxLen(ReplyError, Unavailable):
    """The queue has reached the length that the caller allows."""

    code = "MAXLEN"
    retryable = True
    advice = "the queue is as long as this MAXLEN allows: let workers catch up"


class NoAuth(ReplyError):
    """The node requires a password, or another one."""

    code = "NOAUTH"
    advice = "this node wants a password: give it with -a, or in TUQUE_PASSWORD"


class WrongPass(NoAuth):
    """The user name or the password is wrong."""

    code = "WRONGPASS"
    advice = "check --user and -a, or TUQUE_URL and TUQUE_PASSWORD"


class NoPerm(ReplyError):
    """This user may not do that."""

    code = "NOPERM"
    advice = "ask whoever runs the broker for that right, or log in as another user: --user, -a"


class Denied(NoPerm):
    """The node only talks to its own machine until it has a password."""

    code = "DENIED"
    advice = "the node only talks to this machine until it has a password"


class Quota(ReplyError, Unavailable):
    """The user's tenant may have no more of it now."""

    code = "QUOTA"


class Acked(ReplyError):
    """The job is acknowledged already, or the batch committed."""

    code = "ACKED"


class NotDelivered(ReplyError):
    """Nobody works on the job: there is nothing to postpone."""

    code = "NOTDELIVERED"


class TooLate(ReplyError):
    """Half of the job's time to live, or the run's time limit, is over: it cannot be postponed."""

    code = "TOOLATE"
    advice = "half of the job's life is over, or the run's time limit: stop the work"


class Stale(ReplyError):
    """The run is over: another began since, or it was counted as failed."""

    code = "STALE"


class AtWork(ReplyError):
    """Another worker works on the job, or it was handed out."""

    code = "ATWORK"


class Cancelled(ReplyError):
    """The job was cancelled; `current_job().check()` raises it inside a task."""

    code = "CANCELLED"


class Duplicate(ReplyError):
    """Another job has the UNIQUE key, and is at work, or ON is reject; its id is in the text."""

    code = "DUPLICATE"


class Dead(ReplyError):
    """The job is a dead letter: replay it to have it run again."""

    code = "DEAD"


class IsTube(ReplyError):
    """The queue is a tube: its tasks have no runs, limits or headers, or are not leased."""


class Loading(ReplyError, Unavailable):
    """The node is still loading its journal."""

    code = "LOADING"
    retryable = True
    advice = "the node is reading its journal: try again in a moment"


class Misconf(ReplyError, Unavailable):
    """The node cannot write its journal, and refuses changes until it can."""

    code = "MISCONF"
    retryable = True
    advice = "the node cannot write its journal: look at its log and its disk"


class MaxClients(ReplyError, Unavailable):
    """The node has as many clients as it allows."""

    retryable = True


class Fenced(ReplyError):
    """Another owner has opened the lease group since: stop, or take it over."""

    code = "FENCED"


class NoGroup(ReplyError):
    """The node has no such lease group, or not this epoch of it."""

    code = "NOGROUP"


class NoBatch(ReplyError):
    """The group has no such batch (any more)."""

    code = "NOBATCH"


class NoStage(ReplyError):
    """Nothing is staged in that attempt: it was dropped, or published."""

    code = "NOSTAGE"


class WrongTube(ReplyError):
    """The queue is a tube of another type than the call needs."""

    code = "WRONGTUBE"
    advice = "`TUBE INFO` shows the type of a tube; docs/tubes.md says what each can do"


class NoTube(ReplyError):
    """The node has no tube of that name."""

    code = "NOTUBE"
    advice = "`TUBE LIST` shows the tubes of this node, `TUBE CREATE` makes one"


class NoTask(ReplyError):
    """The tube has no task of that number (any more)."""

    code = "NOTASK"
    advice = "the task is done, deleted or expired: numbers are never given twice"


class NoSchedule(ReplyError):
    """The tube has no schedule of that name (any more)."""

    code = "NOSCHEDULE"
    advice = "`SCHEDULE LIST queue` shows the schedules of a tube of type tasks"


class NoJobGroup(ReplyError):
    """The tube has no group of jobs of that id (any more)."""

    code = "NOJOBGROUP"
    advice = "`GROUP LIST queue` shows the groups of a tube of type tasks"


class NotTaken(ReplyError):
    """The caller's session does not hold the task, or no longer by that take."""

    code = "NOTTAKEN"
    advice = (
        "this session does not hold the task: another one does, its ttr is over, or it was "
        "taken by a `tuque cli` that has ended; `TUBE PEEK` shows its state"
    )


class TubeHome(ReplyError, Unavailable):
    """Another node leads the tube: ask that one. Nothing was done."""

    code = "TUBEHOME"
    retryable = True

    @property
    def home(self) -> str:
        """The "host:port" of that node."""
        return self.message.removeprefix(_BEFORE_HOME).partition(" ")[0]

    @property
    def tube(self) -> str:
        """The name of the tube."""
        return self.message.partition(_BEFORE_TUBE)[2].removesuffix(_BEHIND_TUBE)


class TubesApart(ReplyError):
    """Tubes of one topic have different leaders: nothing was added. `TUBE HOME` moves them."""

    code = "TUBESAPART"
    retryable = True


class NoQuorum(ReplyError, Unavailable):
    """The leader of the tube reaches too few nodes to be sure that it still leads."""

    code = "NOQUORUM"
    retryable = True
    advice = (
        "this node may not run the tube now: wait until it reaches enough nodes; when they are "
        "lost for good, `tuque tubes home NAME NODE --force`"
    )


class ReadOnly(ReplyError, Unavailable):
    """The node refuses changes of tubes; its tubes move to other nodes if there are any."""

    code = "READONLY"
    retryable = True
    advice = "`CONFIG SET read-only no` lets this node change tubes again"


class NoResult(Error):
    """There is no result of the job: it is not kept, or not any more."""


class ResultTimeout(Error, builtins.TimeoutError):
    """The job had not ended in time."""


class JobCancelled(Error):
    """The job whose result was asked for was cancelled."""


class JobFailed(Error):
    """The job whose result was asked for is a dead letter; `detail` is its last traceback."""

    cause: str = ""
    reason: str = ""
    detail: str = ""
    attempts: int = 0


class EnqueueFailed(Error):
    """Some of many jobs were not added, or it is not known of them.

    `added` has the handle of each job that was added, by its place from 0; `failed` the error of
    each other one, whose `may_be_done` says that it may have been added.
    """

    _says_so = True
    added: dict[int, typing.Any] = {}
    failed: dict[int, Error] = {}


class ProtocolError(Error):
    """The peer's bytes are no valid reply."""


class ConfigError(Error, ValueError):
    """A setting has an invalid value; the message names it and what is allowed."""


REPLY_ERRORS: dict[str, type[ReplyError]] = {
    kind.code: kind
    for kind in (
        NoReplica,
        FewCopies,
        NoJob,
        NotInReach,
        NoWorker,
        BadId,
        Paused,
        Leaving,
        Conflict,
        OutOfMemory,
        DiskFull,
        MaxLen,
        NoAuth,
        WrongPass,
        NoPerm,
        Denied,
        Quota,
        Acked,
        NotDelivered,
        TooLate,
        Stale,
        AtWork,
        Cancelled,
        Dead,
        Loading,
        Misconf,
        WrongTube,
        Fenced,
        NoGroup,
        NoBatch,
        NoStage,
        NoTube,
        Duplicate,
        NoTask,
        NotTaken,
        NoSchedule,
        NoJobGroup,
        TubeHome,
        TubesApart,
        NoQuorum,
        ReadOnly,
    )
}

# Texts of which the first word does not say enough: those of Disque, and the one of R5.3.
WHOLE_TEXTS: dict[str, type[ReplyError]] = {
    "ERR invalid password": WrongPass,
    "ERR max number of clients reached": MaxClients,
    "NOREPL Timeout reached before replicating to the requested number of nodes": Withdrawn,
    "NOREPL job removed (expired?) before the requested replication level was achieved": Withdrawn,
    "NOREPL Too few nodes are left for the copies: the job is withdrawn": Withdrawn,
}

# The ends of texts that quote a name after a plain ERR.
_OF_TUBES = (
    "is a tube: its tasks are taken one by one, not leased",
    "is a tube: its tasks have no runs, use TUBE TAKE, ACK and RELEASE",
    "is a tube: ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT, ONEXPIRY and HEADERS are of queues "
    "and tubes of type tasks",
    "is a tube: ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT and HEADERS are of queues "
    "and tubes of type tasks",
    "is a tube: ATTEMPTS, BACKOFF, DEAD, KEEP, TIMELIMIT and HEADERS are of queues",
)


def reply_error(text: str, *, node: str = "", job_id: str | None = None) -> ReplyError:
    """The typed error for an error reply, without its leading '-'."""
    code = text.partition(" ")[0]
    kind = WHOLE_TEXTS.get(text) or REPLY_ERRORS.get(code)
    if kind is None and text.endswith(_OF_TUBES):
        kind = IsTube
    error = (kind or ReplyError)(text, node=node, job_id=job_id)
    if kind is None and code.isupper():
        error.code = code
    return error
