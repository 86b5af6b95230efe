"""Deeds on queues: pause, drain, add a job, delete those that are ready, retry the dead ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuque.clusterview.nodes import DEAD, Queue
from tuque.errors import Error
from tuque.web.deeds import emptying
from tuque.web.deeds.proposal import TYPED_FROM, Field, Outcome, Proposal, Refused
from tuque.web.pages import dead
from tuque.web.show.text import link, plural
from tuque.web.site import Ask

BODY_MAX: Final = 1 << 20
RETRY_MAX: Final = 1 << 31


def named(ask: Ask) -> list[str]:
    """The queues that are meant."""
    found = [one for one in ask.many.get("queue", []) if one]
    if not found:
        raise Refused("No queue was chosen.")
    return found


async def propose_pause(ask: Ask) -> Proposal:
    """Pause or resume queues?"""
    names, to = named(ask), ask.word("to", "in")
    if to not in ("in", "out", "all", "none"):
        raise Refused("A pause is of in, out, all, or none.")
    drain = ask.word("drain") == "yes"
    there = (await ask.site.watch.lists.named(names)).values()
    ready = sum(one.ready for one in there)
    about = ", ".join(names[:5]) + ("" if len(names) <= 5 else f" and {len(names) - 5} more")
    rate = sum(one.came_rate for one in there)
    adds = f"Whoever adds to it gets -PAUSED: {rate:.1f} jobs/s now."
    takes = f"{plural(ready, 'job waits', 'jobs wait')}; nothing is deleted."
    texts = {
        "in": ("Pause input of", "Pause input", [adds, f"{takes} They are still delivered."]),
        "out": ("Pause output of", "Pause output", [f"Nobody gets its jobs. {takes}"]),
        "all": ("Pause", "Pause", [adds, f"Nobody gets its jobs. {takes}"]),
        "none": ("Resume", "Resume", [f"It accepts and delivers jobs again. {takes}"]),
    }
    title, button, follows = texts[to]
    if drain:
        title, button = "Drain", "Drain"
        follows = [*follows, "When it is empty its input is still paused: resume it then."]
    return Proposal(
        "pause",
        f"{title} {about} on all nodes?",
        button,
        button,
        about,
        [*follows, "This holds on all nodes, including those that join later."],
        [("queue", name) for name in names] + [("to", to), ("drain", "yes" if drain else "")],
    )


async def pause(ask: Ask) -> Outcome:
    """Pauses or resumes them, at one node, which sends it to all."""
    names, to = named(ask), ask.word("to", "in")
    nodes = ask.site.watch.nodes.up()
    if not nodes:
        raise Refused("No node answers.")
    said = {"in": "in", "out": "out", "all": "all", "none": "none"}[to]
    for name in names:
        await nodes[0].client.execute("PAUSE", name, said, "bcast")
    await ask.site.watch.fresh()
    words = {"none": "Resumed", "in": "Input paused", "out": "Output paused"}
    note = f"{words.get(to, 'Paused')}: {', '.join(names[:5])}."
    goto = link("queue", name=names[0]) if len(names) == 1 else "/queues"
    there = await ask.site.watch.lists.named(names)
    return Outcome(note, goto, sum(one.ready for one in there.values()))


async def propose_add(ask: Ask) -> Proposal:
    """Add a job by hand?"""
    return Proposal(
        "add",
        "Add a job",
        "Add",
        "Add a job",
        ask.word("queue"),
        [],
        [],
        [
            Field("queue", "Queue", ask.word("queue")),
            Field("body", "Body", ask.word("body"), "area"),
            Field("task", "Task (empty: none)", ask.word("task")),
            Field("delay", "Delay, s", ask.word("delay", "0"), "number"),
            Field("retry", "Retry, s", ask.word("retry", "60"), "number"),
            Field("attempts", "Attempts (0: no limit)", ask.word("attempts", "0"), "number"),
            Field("ttl", "TTL, s (0: never expires)", ask.word("ttl", "86400"), "number"),
        ],
    )


def whole(ask: Ask, name: str) -> int:
    """A number that somebody typed. Refused if it is none."""
    text = ask.word(name, "0").strip() or "0"
    if not text.isascii() or not text.isdigit() or int(text) > RETRY_MAX:
        raise Refused(f"{name} must be a whole number of seconds, 0 or more.")
    return int(text)


async def add(ask: Ask) -> Outcome:
    """Adds it at the first node that answers."""
    queue, body = ask.word("queue").strip(), ask.word("body")
    if not queue:
        raise Refused("A job needs a queue.")
    if len(body.encode("utf-8", "surrogateescape")) > BODY_MAX:
        raise Refused(f"A body from here has at most {BODY_MAX:,} bytes.")
    id = await add_to(ask, queue, body)
    return Outcome(f"Added {id} to {queue}.", link("job", id=id), 1)


async def add_to(
    ask: Ask, queue: str, body: str | bytes, headers: Mapping[str, str] | None = None
) -> str:
    """Adds a job as the form says, with headers of another one; returns its id."""
    retry, attempts = whole(ask, "retry"), whole(ask, "attempts")
    words: list[str | int] = [
        "DELAY",
        whole(ask, "delay"),
        "RETRY",
        retry,
        "TTL",
        whole(ask, "ttl"),
    ]
    if attempts:
        words += ["ATTEMPTS", attempts]
    all_headers = {name: value for name, value in (headers or {}).items() if name != "tuque-task"}
    if ask.word("task"):
        all_headers["tuque-task"] = ask.word("task")
    if all_headers:
        words += ["HEADERS", len(all_headers)]
        words += [word for pair in all_headers.items() for word in pair]
    for node in ask.site.watch.nodes.up():
        try:
            reply = await node.client.execute("ADDJOB", queue, body, 5000, *words)
        except Error as err:
            if err.may_be_done or not err.retryable:
                raise
            continue
        return str(reply, "ascii")
    raise Refused("No node takes jobs now.")


async def queue_of(ask: Ask) -> Queue:
    """The one queue that is meant. Refused if it is a tube, or keeps dead letters."""
    names = named(ask)
    if len(names) > 1:
        raise Refused("Delete the jobs of one queue at a time.")
    found = (await ask.site.watch.lists.named(names)).get(names[0])
    if found is None or not found.ready:
        raise Refused(f"No job of {names[0]} is ready.")
    if found.type:
        raise Refused("It is a tube: its tasks are deleted by TUBE DROP, or one by one.")
    if found.is_dead:
        raise Refused("It keeps dead letters: delete them on their own page.")
    return found


async def propose_empty(ask: Ask) -> Proposal:
    """Delete all ready jobs of a queue?"""
    found = await queue_of(ask)
    count, jobs = found.ready, plural(found.ready, "ready job")
    return Proposal(
        "empty",
        f"Delete {jobs} of {found.name}?",
        f"Delete {count:,}",
        "Delete ready jobs",
        found.name,
        [
            f"{jobs} never {'runs' if count == 1 else 'run'}; "
            "whoever waits for a result sees that the job was cancelled.",
            "Delayed jobs and those at work stay, and so do jobs that come meanwhile.",
            "A job that a worker gets meanwhile is cancelled as soon as that worker is notified.",
            "This cannot be undone.",
        ],
        [("queue", found.name)],
        count=count,
        is_danger=True,
        typed=found.name if count > TYPED_FROM else "",
    )


async def empty(ask: Ask) -> Outcome:
    """Begins to cancel them; it is logged when it has ended."""
    found, who = await queue_of(ask), ask.session.name
    run = emptying.work(ask.site.watch.nodes.up(), found.name, who)
    ask.site.running.begin(who, "Deleting ready jobs", found.name, found.ready, run)
    note = f"Deleting {plural(found.ready, 'ready job')} of {found.name}."
    return Outcome(note, link("queue", name=found.name), found.ready, is_long=True)


async def propose_retry(ask: Ask) -> Proposal:
    """Retry all dead letters of queues?"""
    return await dead.propose_retry(of_graves(ask))


async def retry(ask: Ask) -> Outcome:
    """Retries them."""
    return await dead.retry(of_graves(ask))


def of_graves(ask: Ask) -> Ask:
    """The question about queues as one about their queues of dead letters."""
    names = named(ask)
    if len(names) > 1:
        raise Refused("Retry the dead letters of one queue at a time, or all on their own page.")
    known = ask.view.queues.get(names[0])
    is_own = names[0].endswith(DEAD) or (known is not None and known.type != "")
    words = {**ask.words, "queue": names[0] if is_own else names[0] + DEAD}
    return Ask(ask.site, ask.path, words, ask.session, {**ask.many, "queue": [words["queue"]]})
