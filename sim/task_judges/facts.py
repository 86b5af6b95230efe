"""What clients know of a tube of type `tasks`: its jobs, who worked on them, who ended them.

The first word of its body identifies a job. keys.py has what the leaders did.
"""

from __future__ import annotations

from typing import Any, Final

from sim.tube_judges.facts import seconds

DRIFT: Final = 0.99  # clocks differ by less
CRASHES_MAX: Final = 3  # of a node by default


class Edit:
    """One UPDATEJOB of a body."""

    def __init__(self, asked_us: int) -> None:
        self.asked_us = asked_us
        self.made_us = 0  # when it was answered with OK
        self.is_refused = False  # a worker had it: nothing is changed


class Job:
    """A job that a client adds."""

    def __init__(self, token: bytes, args: dict[str, Any], asked_us: int) -> None:
        self.token = token
        self.asked_us = asked_us
        self.unique: bytes = args.get("unique", b"")
        self.on: bytes = args.get("on", b"")
        self.limit: tuple[bytes, int] = args.get("limit", (b"", 0))  # key, places
        self.rate: tuple[bytes, int, int] = args.get("rate", (b"", 0, 0))  # key, a second, burst
        self.group: tuple[bytes, int] = args.get("group", (b"", 1))  # key, weight
        self.attempts: int = args.get("attempts", 0)
        self.retry_s: int = args["retry"]
        self.ttl_s: int = args.get("ttl", 600)
        self.id = b""
        self.is_answered = False  # a client was told its id
        self.ends_asked_us: list[int] = []  # DONE, ACKJOB, CANCEL, the last FAIL
        self.over_us = 0  # when a client was told that it has ended
        self.over_by = b""  # by which run
        self.starts: set[bytes] = set()  # that were asked, by what the worker called itself
        self.released: set[bytes] = set()  # of those the runs that were given back
        self.put_epoch = 0  # of the leader that added it
        self.edits: list[Edit] = []  # by number, from 1 on

    def words(self, tube: bytes) -> list[bytes]:
        """ADDJOB."""
        words = [b"ADDJOB", tube, self.token, b"1000", b"RETRY", b"%d" % self.retry_s]
        words += [b"TTL", b"%d" % self.ttl_s]
        if self.attempts:
            words += [b"ATTEMPTS", b"%d" % self.attempts, b"BACKOFF", b"0.1", b"1", b"0"]
        if self.unique:
            words += [b"UNIQUE", self.unique] + ([b"ON", self.on] if self.on else [])
        if self.limit[0]:
            words += [b"LIMIT", self.limit[0], b"%d" % self.limit[1]]
        if self.rate[0]:
            words += [b"RATE", self.rate[0], b"%d/s" % self.rate[1], b"%d" % self.rate[2]]
        if self.group[0]:
            words += [b"GROUP", self.group[0], b"WEIGHT", b"%d" % self.group[1]]
        return words

    def may_be_over(self, now_us: int) -> bool:
        """Whether somebody or something may have ended it."""
        if self.ends_asked_us or now_us > self.asked_us + self.ttl_s * 1_000_000 * DRIFT:
            return True
        starts = len(self.starts)
        is_crashed = starts - len(self.released) >= CRASHES_MAX  # W6.7: each may have been silent
        return self.attempts > 0 and (self.attempts <= starts or is_crashed)


class Hold:
    """A client has a task: a majority of the nodes knows that until then."""

    def __init__(self, job: Job, run: bytes, until_us: int) -> None:
        self.job = job
        self.run = run
        self.until_us = until_us


class TaskTube:
    """One tube of type `tasks` as its clients know it."""

    def __init__(self, name: str, args: dict[str, Any]) -> None:
        self.name = name
        self.key = name.encode()
        self.sync: int = args.get("sync", 1)
        self.ttr_ms: int = args.get("ttr", 3_000)
        self.jobs: dict[bytes, Job] = {}  # by token
        self.by_id: dict[bytes, Job] = {}
        self.same: dict[bytes, dict[bytes, Job]] = {}  # by unique key: those not yet over, by id
        self.holds: dict[bytes, Hold] = {}  # by id of the job

    def words(self) -> list[bytes]:
        """TUBE CREATE."""
        words = [b"TUBE", b"CREATE", self.key, b"tasks", b"IFNOTEXISTS", b"ALONE", b"TTR"]
        words.append(seconds(self.ttr_ms))
        return words + ([b"SYNC", b"%d" % self.sync] if self.sync > 1 else [])

    def new_job(self, args: dict[str, Any], asked_us: int) -> Job:
        """A job is about to be added."""
        job = Job(b"{%s %d}" % (self.key, len(self.jobs)), args, asked_us)
        self.jobs[job.token] = job
        return job

    def job_of(self, id: bytes, body: bytes) -> Job | None:
        """The job with that body, whose id is known from now on."""
        job = self.jobs.get(body[: body.find(b"}") + 1])
        if job is not None and not job.id:
            job.id = id
            self.by_id[id] = job
        return job
