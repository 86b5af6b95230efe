"""What the broker is told of a run, for an app with keys: nothing that it could read (SPEC U8)."""

from __future__ import annotations

from typing import Final

import msgspec

from tuque.worker.seal.keys import RESULT, Keys
from tuque.worker.tasks.policy import Outcome

IN_LOG: Final = "its text is in the log of the worker"
OWN_TEXTS: Final = ("done", "timeout", "crashed")  # not of the task


def sealed(outcome: Outcome, job_id: str, keys: Keys | None) -> Outcome:
    """[U8] The outcome as the broker may know it: result under a key (U8.3), no texts (U8.4)."""
    if keys is None:
        return outcome
    if outcome.result is not None:
        return msgspec.structs.replace(outcome, result=keys.seal(outcome.result, RESULT, job_id))
    if not keys.hides:
        return outcome
    text = outcome.text if outcome.kind in OWN_TEXTS else hidden(outcome)
    return msgspec.structs.replace(outcome, text=text, trace="")


def hidden(outcome: Outcome) -> str:
    """The name of the exception, if there is one; its text may have arguments of the task."""
    name = outcome.text.partition(":")[0] if outcome.kind == "failed" else ""
    return f"{name}: {IN_LOG}" if name.isidentifier() else IN_LOG
