"""Workers: who is alive, what does each run, since when? And orders to them."""

from __future__ import annotations

from tuque.clusterview.work import KINDS, WorkerRow, workers_of
from tuque.web.actions import Outcome, Proposal, Refused
from tuque.web.show.text import link, plural
from tuque.web.site import Ask, Page, shared


async def workers(ask: Ask) -> Page:
    """Who is alive, what does each run, since when?"""
    every = await workers_of(ask.site.watch.nodes)
    wanted, kind = ask.word("match").lower(), ask.word("kind", "all")
    found = [
        one
        for one in every
        if (kind in ("all", one.state))
        and wanted in f"{one.name} {one.host} {one.app} {one.queues}".lower()
    ]
    lost = [one for one in every if one.state == "lost"]
    return Page(
        "workers",
        {
            **shared(ask, "workers"),
            "rows": found,
            "every": every,
            "lost": lost,
            "kind": kind,
            "wanted": ask.word("match"),
            "marks": KINDS,
            "alive": len(every) - len(lost),
            "busy": sum(one.busy for one in every if one.state != "lost"),
            "slots": sum(one.slots for one in every if one.state != "lost"),
            "kinds": [(name, sum(one.state == name for one in every)) for name in KINDS],
        },
    )


# ---- Deeds on workers: quiet, stop


async def workers_named(ask: Ask) -> list[WorkerRow]:
    """The workers that are meant: one, or all that are alive."""
    name = ask.word("worker")
    every = await workers_of(ask.site.watch.nodes)
    found = [one for one in every if one.state != "lost" and name in ("*", one.name)]
    if not found:
        raise Refused("No such worker is alive.")
    return found


async def propose_quiet(ask: Ask) -> Proposal:
    """Take no more jobs?"""
    found = await workers_named(ask)
    return order_of(ask, found, "quiet", "Quiet", ["Jobs that it runs now are finished."])


async def propose_stop(ask: Ask) -> Proposal:
    """End the program?"""
    found = await workers_named(ask)
    follows = ["As on SIGTERM: it takes no more jobs, finishes those that it runs, and ends."]
    asked = order_of(ask, found, "stop-worker", "Stop", follows)
    asked.is_danger = True
    return asked


def order_of(
    ask: Ask, found: list[WorkerRow], name: str, word: str, follows: list[str]
) -> Proposal:
    """The dialog of an order to workers."""
    whom = found[0].name if len(found) == 1 else plural(len(found), "worker")
    return Proposal(
        name,
        f"{word} {whom}?",
        word,
        word,
        ", ".join(one.name for one in found[:10]),
        [*follows, f"{plural(sum(one.busy for one in found), 'job')} at work there now."],
        [("worker", ask.word("worker"))],
    )


async def quiet(ask: Ask) -> Outcome:
    """Orders them to take no more jobs."""
    return await ordered(ask, "QUIET", "told to take no more jobs")


async def stop_worker(ask: Ask) -> Outcome:
    """Orders them to end."""
    return await ordered(ask, "STOP", "told to stop")


async def ordered(ask: Ask, order: str, words: str) -> Outcome:
    """Sends an order through the nodes that hear the workers."""
    found = await workers_named(ask)
    nodes = ask.site.watch.nodes.known
    for one in found:
        await nodes[one.node].client.execute("WORKER", order, one.name)
    whom = found[0].name if len(found) == 1 else plural(len(found), "worker")
    return Outcome(f"{whom}: {words}.", link("workers"), sum(one.busy for one in found))
