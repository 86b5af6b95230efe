"""What clients know about the work on each job: the truth that lives.py judges by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sim.judges.life_edits import Edit

END_VERBS: Final = ("DONE", "ACKJOB", "CANCEL", "PURGE")


class Run:
    """A run, as in the reply that the worker got."""

    def __init__(self, token: bytes, attempt: int, worker: bytes, node: str, asked_us: int) -> None:
        self.token = token
        self.attempt = attempt
        self.worker = worker
        self.node = node  # where it began
        self.asked_us = asked_us  # when its START was sent
        self.at_us = 0  # when that was answered
        self.replays = 0  # of which life of the job
        self.heard_us = asked_us  # last word of it that was accepted, when it was sent
        self.over_us = 0  # when somebody first asked to end it; 0: nobody did
        self.is_said_to_fail = False  # a FAIL of it was sent
        self.failed_us = 0  # when its failure was confirmed
        self.deaths = 0  # of that node, so far


class LifeJob:
    """One ADDJOB with options about its work, and what the replies were about the job."""

    def __init__(self, token: bytes, args: dict[str, Any], asked_us: int) -> None:
        self.token = token
        self.asked_us = asked_us
        self.id = b""
        self.is_added = False
        self.is_given_up = False  # a FAIL with FINAL was sent
        self.repl: int = args["repl"]
        self.retry_s: int = args["retry"]
        self.ttl_s: int = args["ttl"]
        self.attempts: int = args["attempts"]
        self.keep_s: int = args["keep"]
        self.limit_s: float = args["limit"]
        self.runs: dict[bytes, Run] = {}
        self.unsure = 0  # STARTs without a reply: each may have begun a run
        self.began: dict[int, int] = {}  # replays -> runs that began in that life
        self.asked: set[str] = set()  # verbs
        self.edits: list[Edit] = []
        self.cancelled_us = 0  # since when it is known to be over, by CANCEL
        self.read: tuple[object, object] | None = None  # state and result, once read
        self.read_us = 0

    def run_of(self, token: bytes) -> Run | None:
        """The run with that token."""
        return self.runs.get(token)

    def end_runs(self, now_us: int) -> None:
        """Somebody asks to end the job: whatever run there is may be over from now on."""
        for run in self.runs.values():
            run.over_us = run.over_us or now_us
