"""Workers: who is alive, what does each run, since when?"""

from __future__ import annotations

from tuque.clusterview.work import KINDS, workers_of
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
