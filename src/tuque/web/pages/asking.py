"""Actions: the dialog that asks, and what is done when the answer is yes.

Decides that nothing is done whose count has changed since the dialog said it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tuque.errors import Error
from tuque.web.actions import (
    Action,
    NotYet,
    Outcome,
    Proposal,
    Refused,
)
from tuque.web.pages import dead as dead_page
from tuque.web.pages import (
    groups_and_topics,
    job,
    queue,
    schedules,
    tube_actions,
    workers,
)
from tuque.web.show.text import plural
from tuque.web.site import Ask, Page, shared

Propose = Callable[[Ask], Awaitable[Proposal]]
Perform = Callable[[Ask], Awaitable[Outcome]]

# words of forms
SUBJECTS: Final = ("queue", "id", "tube", "schedule", "worker", "group", "topic", "task", "text")
SAID: Final = 5  # of them in a line of the log

DEEDS: Final[dict[str, tuple[Propose, Perform]]] = {
    "retry-dead": (dead_page.propose_retry, dead_page.retry),
    "delete-dead": (dead_page.propose_delete, dead_page.delete),
    "pause": (queue.propose_pause, queue.pause),
    "add": (queue.propose_add, queue.add),
    "empty": (queue.propose_empty, queue.empty),
    "retry": (queue.propose_retry, queue.retry),
    "run": (job.propose_run, job.run),
    "cancel": (job.propose_cancel, job.cancel),
    "delete": (job.propose_delete, job.delete),
    "edit": (job.propose_edit, job.edit),
    "move": (job.propose_move, job.move),
    "home": (tube_actions.propose_home, tube_actions.home),
    "kick": (tube_actions.propose_kick, tube_actions.kick),
    "quiet": (workers.propose_quiet, workers.quiet),
    "stop-worker": (workers.propose_stop, workers.stop_worker),
    "release": (tube_actions.propose_release, tube_actions.release),
    "pause-schedule": (schedules.propose_pause, schedules.pause),
    "resume-schedule": (schedules.propose_resume, schedules.resume),
    "run-schedule": (schedules.propose_run, schedules.run),
    "drop-schedule": (schedules.propose_drop, schedules.drop),
    "cancel-group": (groups_and_topics.propose_cancel, groups_and_topics.cancel),
    "subscribe": (groups_and_topics.propose_subscribe, groups_and_topics.subscribe),
    "unsubscribe": (groups_and_topics.propose_unsubscribe, groups_and_topics.unsubscribe),
}


async def dialog(ask: Ask, name: str) -> Page:
    """What a dialog asks, with counts of now."""
    try:
        asked = await proposed(ask, name)
    except NotYet as err:
        page = page_of(ask, None, str(err))
        page.context["is_reading"] = True
        return page
    except (Refused, Error) as err:
        return page_of(ask, None, str(err))
    return page_of(ask, asked)


async def proposed(ask: Ask, name: str) -> Proposal:
    """What is asked now. Refused if no node answered: then nothing was counted."""
    try:
        return await DEEDS[name][0](ask)
    finally:
        if ask.site.watch.nodes.is_cut_off:
            raise Refused("No node answers: nothing could be counted.")


def page_of(ask: Ask, asked: Proposal | None, refused: str = "", status: int = 200) -> Page:
    """The dialog as a page; in a dialog only its middle is shown."""
    return Page(
        "ask", {**shared(ask, ""), "asked": asked, "refused": refused, "is_reading": False}, status
    )


async def done(ask: Ask, name: str) -> Page | Outcome:
    """The action, or the dialog once more if it is not about what was said."""
    perform = DEEDS[name][1]
    asked: Proposal | None = None
    try:
        asked = await proposed(ask, name)
        if not asked.is_as_shown(ask.word("count")):
            asked.changed = (
                f"Meanwhile it is {plural(asked.count or 0, 'job')}, not {ask.word('count')}."
            )
            return page_of(ask, asked, status=409)
        if asked.typed and ask.word("typed") != asked.typed:
            return page_of(ask, asked, f"To continue, type {asked.typed} exactly.", 409)
        outcome = await perform(ask)
    except (Refused, Error) as err:
        noted(ask, asked, None, f"refused: {err}")
        return page_of(ask, asked, str(err), 409)
    if not outcome.is_long:
        asked.about = outcome.about or asked.about
        noted(ask, asked, outcome.jobs, "done")
    ask.site.notes.setdefault(ask.session.id, []).append(outcome.note)
    ask.site.graves.expire()
    ask.site.watch.hurry()
    return outcome


def noted(ask: Ask, asked: Proposal | None, jobs: int | None, came_of_it: str) -> None:
    """A line of the log."""
    what, about = (asked.what, asked.about) if asked else (named(ask), subject(ask))
    ask.site.log.add(Action(time.time(), ask.session.name, what, about, jobs, came_of_it))


def named(ask: Ask) -> str:
    """The action that an address means."""
    return ask.path.rpartition("/")[2].replace("-", " ").capitalize()


def subject(ask: Ask) -> str:
    """What an action that came to nothing was about."""
    words = [one for name in SUBJECTS for one in ask.many.get(name, []) if one]
    more = f" and {len(words) - SAID:,} more" if len(words) > SAID else ""
    return ", ".join(words[:SAID]) + more


async def log(ask: Ask) -> Page:
    """Who changed what, and when."""
    actions = [msgspec.structs.asdict(one) for one in ask.site.log.latest]
    return Page("log", {**shared(ask, "log"), "actions": actions[:200]})
