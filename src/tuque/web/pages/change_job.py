"""Deeds on one job: run now, cancel, delete, edit, add again, move."""

from __future__ import annotations

from tuque.aio import Client
from tuque.clusterview.work import JobFacts, job_of
from tuque.errors import BadId, Error, NoJob, ReplyError
from tuque.logtext import HIDDEN
from tuque.web.deeds.moving import moved
from tuque.web.deeds.proposal import Field, Outcome, Proposal, Refused
from tuque.web.pages.change_queue import add_to
from tuque.web.pages.job import described, state_words
from tuque.web.show.text import link
from tuque.web.site import Ask

EDITED_MAX = 64 * 1024  # bytes of a body that is changed in a browser


async def facts_of(ask: Ask, is_delete: bool = False) -> JobFacts:
    """[O14] The job as nodes know it now. Refused if none does, or it is none (O14.20, O14.31)."""
    try:
        facts = await job_of(ask.site.watch.nodes, ask.word("id"))
    except BadId:
        raise Refused("This is no id of a job.") from None
    if facts.best is None:
        raise Refused("No node has this job any more.")
    if facts.schedule and not is_delete:
        raise Refused(f"This is the schedule {facts.schedule}: the page Schedules changes it.")
    if facts.best.children:
        raise Refused("This is a group of jobs: its own page cancels it.")
    if facts.best.child:
        raise Refused("This is no job, but how a group notes the end of one: see the group.")
    return facts


async def asked(ask: Ask, name: str, words: tuple[str, str], follows: list[str]) -> Proposal:
    """A dialog about one job."""
    facts = await facts_of(ask, name == "delete")
    title, button = words
    state = f"Now it {state_words(facts)[1]}."
    return Proposal(
        name,
        title,
        button,
        button,
        described(facts),
        [state, *follows],
        [("id", facts.id)],
        count=1,
    )


async def propose_run(ask: Ask) -> Proposal:
    """Queue it now?"""
    return await asked(
        ask,
        "run",
        ("Run this job now?", "Run now"),
        ["It enters its queue at once; what is left of its delay or back-off is skipped."],
    )


async def run(ask: Ask) -> Outcome:
    """Queues it at a node that has it; a dead letter begins anew."""
    facts = await facts_of(ask)
    if facts.dead is not None:
        return await replay(ask, facts)
    for one in facts.copies:
        if one.info is not None and one.info.state == "active":
            if await one.node.client.enqueue(facts.id):
                return Outcome("Queued now.", link("job", id=facts.id), 1)
    raise Refused("It is in its queue already, or somebody works on it.")


async def replay(ask: Ask, facts: JobFacts) -> Outcome:
    """A dead letter back to its queue."""
    assert facts.dead is not None
    for one in facts.copies:
        if one.info is not None and await one.node.client.dead_replay(
            facts.dead.queue, ids=[facts.id]
        ):
            note = f"Back in {facts.dead.origin}, with its first attempt."
            return Outcome(note, link("job", id=facts.id), 1)
    raise Refused("It is no dead letter any more.")


async def propose_cancel(ask: Ask) -> Proposal:
    """Cancel it?"""
    found = await asked(
        ask,
        "cancel",
        ("Cancel this job?", "Cancel the job"),
        ["If it waits, it ends and never runs.", "If a worker has it, the worker is notified."],
    )
    found.is_danger = True
    found.fields = [Field("reason", "Why? Those who wait for its result see it.")]
    return found


async def cancel(ask: Ask) -> Outcome:
    """Cancels it, at any node."""
    facts = await facts_of(ask)
    nodes = ask.site.watch.nodes.up()
    (became,) = await nodes[0].client.cancel(facts.id, reason=ask.word("reason") or "by hand")
    notes = {
        "ended": "Cancelled: it never runs.",
        "flagged": "Its worker was notified, and may still finish it.",
        "over": "It had ended before.",
    }
    if became is None:
        raise Refused("No node has this job any more.")
    if isinstance(became, ReplyError):
        raise Refused(str(became))
    return Outcome(notes[became], link("job", id=facts.id), 0 if became == "over" else 1)


async def propose_delete(ask: Ask) -> Proposal:
    """Delete it at all nodes?"""
    found = await asked(
        ask,
        "delete",
        ("Delete this job on all nodes?", "Delete"),
        ["Its body, its attempts and its result are gone.", "This cannot be undone."],
    )
    found.is_danger = True
    facts = await facts_of(ask, is_delete=True)
    if facts.schedule:
        found.title, found.follows = f"Drop the schedule {facts.schedule}?", drops(facts)
    return found


def drops(facts: JobFacts) -> list[str]:
    """[O14] What becomes of a schedule that is deleted (O14.20)."""
    queue = facts.best.queue if facts.best else "its queue"
    return [
        f"This is no job: it is the schedule {facts.schedule} of {queue}, which makes jobs.",
        "It makes no more of them. Those that it has made stay.",
        "This cannot be undone. To hold it for a while, pause it on the page Schedules.",
    ]


async def delete(ask: Ask) -> Outcome:
    """Removes it at every node that has it."""
    facts = await facts_of(ask, is_delete=True)
    if facts.dead is not None:
        queue = facts.dead.queue
        done = 0
        for one in facts.copies:
            if one.info is not None:
                done += await one.node.client.dead_purge(queue, ids=[facts.id])
        return Outcome("Deleted." if done else "It was gone already.", link("dead", queue=queue), 1)

    async def removed(client: Client) -> int:
        return await client.deljob(facts.id)

    done = sum((await ask.site.watch.nodes.ask(removed)).values())
    if not done:
        raise NoJob("it was gone already")
    best = facts.best
    return Outcome("Deleted.", link("queue", name=best.queue if best else ""), 1)


async def propose_edit(ask: Ask) -> Proposal:
    """Another body: for this job if it waits, or for a new one?"""
    facts = await facts_of(ask)
    best = facts.best
    body = (facts.dead.body if facts.dead else None) or (best.body if best else None) or b""
    if len(body) > EDITED_MAX:
        raise Refused(f"Its body has {len(body):,} bytes; here at most {EDITED_MAX:,} are edited.")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Refused("Its body is no text: it cannot be edited here.") from None
    if HIDDEN.search(text.replace("\n", "")):
        raise Refused("Its body has control characters: it cannot be edited here.")
    queue = facts.dead.origin if facts.dead else best.queue if best else ""
    task = headers_of(facts).get("tuque-task", "")
    attempts = facts.dead.of if facts.dead else facts.work.attempts if facts.work else 0
    return Proposal(
        "edit",
        "Edit and add again",
        "Go on",
        "Edit",
        described(facts),
        [
            "As a new job, with the headers of this one, which stays as it is.",
            "Or in place, if nobody works on it: same id, same place.",
        ],
        [("id", facts.id)],
        [
            Field("how", "What", "add a new job", "select", ("add a new job", "change this job")),
            Field("queue", "Queue of a new job", queue or ""),
            Field("body", "Body", text, "area"),
            Field("task", "Task of a new job (empty: none)", task),
            Field("retry", "Retry of a new job, s", str(best.retry_s if best else 60), "number"),
            Field("attempts", "Attempts of a new job (0: no limit)", str(attempts), "number"),
            Field("ttl", "TTL, s (0: never expires)", "86400", "number"),
        ],
        count=1,
    )


async def edit(ask: Ask) -> Outcome:
    """Changes it, or adds the new one."""
    facts = await facts_of(ask)
    body = ask.word("body").replace("\r\n", "\n")
    if ask.word("how") != "change this job":
        id = await add_to(ask, ask.word("queue"), body, headers_of(facts))
        return Outcome(f"Added {id}.", link("job", id=id), 1)
    failed: Error | None = None
    for one in facts.copies:
        if one.info is not None:
            try:
                await one.node.client.updatejob(facts.id, body=body)
            except Error as err:
                failed = err
                continue
            return Outcome("Changed.", link("job", id=facts.id), 1)
    raise Refused(f"It could not be changed: {failed}")


def headers_of(facts: JobFacts) -> dict[str, str]:
    """Its headers."""
    return facts.dead.headers if facts.dead else facts.work.headers if facts.work else {}


async def propose_move(ask: Ask) -> Proposal:
    """Into another queue?"""
    found = await asked(
        ask,
        "move",
        ("Move this job to another queue?", "Move"),
        [
            "It gets a new id there, with its body, headers and options; its attempts begin anew.",
            "Whoever waits for its result here sees that it was cancelled, and where it went.",
            "If the console dies meanwhile, the job may be in both queues; with RETRY 0, in none.",
        ],
    )
    facts = await facts_of(ask)
    if facts.dead is not None:
        found.follows[1:] = ["It goes there under its id, and begins with its first attempt."]
    found.fields = [Field("to", "To the queue", facts.dead.origin if facts.dead else "")]
    return found


async def move(ask: Ask) -> Outcome:
    """Moves it; a dead letter is replayed there."""
    facts, to = await facts_of(ask), ask.word("to").strip()
    if not to:
        raise Refused("Say to which queue.")
    if facts.dead is not None:
        for one in facts.copies:
            if one.info is not None and await one.node.client.dead_replay(
                facts.dead.queue, ids=[facts.id], to=to
            ):
                return Outcome(f"Moved to {to}.", link("job", id=facts.id), 1)
        raise Refused("It is no dead letter any more.")
    id = await moved(facts, to)
    return Outcome(f"Moved to {to} as {id}.", link("job", id=id), 1)
