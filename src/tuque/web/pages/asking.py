"""Deeds: the dialog that asks, and what is done when the answer is yes.

Decides that nothing is done whose count has changed since the dialog said it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tuque.errors import Error
from tuque.web.deeds.log import Deed
from tuque.web.deeds.proposal import Outcome, Proposal, Refused
from tuque.web.pages import change_job, change_queue, change_rest
from tuque.web.pages import dead as dead_page
from tuque.web.site import Ask, Page, shared

Propose = Callable[[Ask], Awaitable[Proposal]]
Perform = Callable[[Ask], Awaitable[Outcome]]

DEEDS: Final[dict[str, tuple[Propose, Perform]]] = {
    "retry-dead": (dead_page.propose_retry, dead_page.retry),
    "delete-dead": (dead_page.propose_delete, dead_page.delete),
    "pause": (change_queue.propose_pause, change_queue.pause),
    "add": (change_queue.propose_add, change_queue.add),
    "empty": (change_queue.propose_empty, change_queue.empty),
    "retry": (change_queue.propose_retry, change_queue.retry),
    "run": (change_job.propose_run, change_job.run),
    "cancel": (change_job.propose_cancel, change_job.cancel),
    "delete": (change_job.propose_delete, change_job.delete),
    "edit": (change_job.propose_edit, change_job.edit),
    "move": (change_job.propose_move, change_job.move),
    "home": (change_rest.propose_home, change_rest.home),
    "kick": (change_rest.propose_kick, change_rest.kick),
    "quiet": (change_rest.propose_quiet, change_rest.quiet),
    "stop-worker": (change_rest.propose_stop, change_rest.stop_worker),
    "release": (change_rest.propose_release, change_rest.release),
}


async def dialog(ask: Ask, name: str) -> Page:
    """What a dialog asks, with counts of now."""
    try:
        asked = await DEEDS[name][0](ask)
    except (Refused, Error) as err:
        return page_of(ask, None, str(err))
    return page_of(ask, asked)


def page_of(ask: Ask, asked: Proposal | None, refused: str = "", status: int = 200) -> Page:
    """The dialog as a page; in a dialog only its middle is shown."""
    return Page("ask", {**shared(ask, ""), "asked": asked, "refused": refused}, status)


async def done(ask: Ask, name: str) -> Page | Outcome:
    """The deed, or the dialog once more if it is not about what was said."""
    propose, perform = DEEDS[name]
    asked: Proposal | None = None
    try:
        asked = await propose(ask)
        if not asked.is_as_said(ask.word("count")):
            asked.changed = f"Meanwhile it is {asked.count:,} jobs, not {ask.word('count')}."
            return page_of(ask, asked, status=409)
        if asked.typed and ask.word("typed") != asked.typed:
            asked.changed = f"Type {asked.typed} to go on."
            return page_of(ask, asked, status=409)
        outcome = await perform(ask)
    except (Refused, Error) as err:
        noted(ask, asked, None, f"refused: {err}")
        return page_of(ask, asked, str(err), 409)
    if not outcome.is_long:
        noted(ask, asked, outcome.jobs, "done")
    ask.site.notes.setdefault(ask.session.id, []).append(outcome.note)
    ask.site.graves.expire()
    ask.site.watch.hurry()
    return outcome


def noted(ask: Ask, asked: Proposal | None, jobs: int | None, came_of_it: str) -> None:
    """A line of the log."""
    what, about = (asked.what, asked.about) if asked else ("?", "")
    ask.site.log.add(Deed(time.time(), ask.session.name, what, about, jobs, came_of_it))


async def log(ask: Ask) -> Page:
    """Who changed what, and when."""
    deeds = [msgspec.structs.asdict(one) for one in ask.site.log.latest]
    return Page("log", {**shared(ask, "log"), "deeds": deeds[:200]})
