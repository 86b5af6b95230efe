"""Actions on tubes and leases: another leader, buried tasks, a group to be forgotten."""

from __future__ import annotations

import shlex

from tuque.client.commands.tubes import TubeInfo
from tuque.clusterview.nodes import Node
from tuque.clusterview.queues import (
    LeaseRow,
    TubeRow,
    leases_at,
    tube_of,
)
from tuque.errors import Error, ReplyError
from tuque.web.actions import (
    Field,
    Outcome,
    Proposal,
    Refused,
)
from tuque.web.show.text import link, plural
from tuque.web.site import Ask


async def tube_named(ask: Ask) -> TubeRow:
    """The tube that is meant. Refused if no node knows it."""
    row = await tube_of(ask.site.watch.nodes, ask.word("tube"))
    if row is None:
        raise Refused("No node that answers knows this tube.")
    return row


def home_of(ask: Ask, info: TubeInfo) -> Node:
    """[O14] The leader of a tube. Refused if it does not answer, with what works (O14.9)."""
    nodes = ask.site.watch.nodes
    found = next((node for node in nodes.up() if node.id == info.home), None)
    if found is None:
        raise Refused(silent_home(info))
    return found


def silent_home(info: TubeInfo) -> str:
    """[O14] What is known of a tube whose leader is silent, and what works (O14.9)."""
    words = (
        f"Its leader {info.home[:8]} does not answer: how many tasks it has is not known, and only"
    )
    words += " the leader can hand them over. "
    if info.failover:
        return words + "A vote gives it a new leader once most voters are there. Wait."
    command = f"tuque tubes home {shlex.quote(info.name)} NODE --force"
    return words + f"Wait until it is back. If it is lost for good, force a new leader: {command}"


async def propose_home(ask: Ask) -> Proposal:
    """Another leader for a tube?"""
    row = await tube_named(ask)
    home_of(ask, row.info)
    others = [node for node in ask.site.watch.nodes.up() if node.id != row.info.home]
    if not others:
        raise Refused("No other node answers.")
    name = row.info.name
    tasks = plural(row.info.ready + row.info.taken + row.info.delayed, "task")
    return Proposal(
        "home",
        f"Move the leader of {name}?",
        "Move",
        "Move the leader",
        f"{name}, now at {row.info.home[:8]}",
        [
            f"{tasks} stay where they are in the order.",
            "The tube stops for a moment, until the new leader has all changes.",
            "Consumers continue at the new leader; tasks that they hold stay theirs.",
        ],
        [("tube", name)],
        [Field("node", "To", others[0].short, "select", tuple(node.short for node in others))],
    )


async def home(ask: Ask) -> Outcome:
    """Asks the leader to hand it over."""
    row = await tube_named(ask)
    at = home_of(ask, row.info)
    up = ask.site.watch.nodes.up()
    to = next((one for one in up if one.short == ask.word("node")), None)
    if to is None:
        raise Refused("The node that you chose does not answer any more.")
    try:
        await at.client.execute("TUBE", "HOME", row.info.name, to.id)
    except ReplyError:
        raise
    except Error:
        raise Refused(f"Whether it moved is not known. {silent_home(row.info)}") from None
    about = f"{row.info.name}, from {row.info.home[:8]} to {to.short}"
    return Outcome(f"{row.info.name} has its leader at {to.short}.", "/tubes", about=about)


async def propose_kick(ask: Ask) -> Proposal:
    """Buried tasks ready again?"""
    row = await tube_named(ask)
    count = row.info.buried
    return Proposal(
        "kick",
        f"Kick {plural(count, 'buried task')} of {row.info.name}?",
        f"Kick {count:,}",
        "Kick",
        row.info.name,
        ["They are ready again, and are taken in the order of the tube."],
        [("tube", row.info.name)],
        count=count,
    )


async def kick(ask: Ask) -> Outcome:
    """Kicks them, at the leader."""
    row = await tube_named(ask)
    at = home_of(ask, row.info)
    done = int(await at.client.execute("TUBE", "KICK", row.info.name, row.info.buried))
    return Outcome(f"Kicked {plural(done, 'task')}.", "/tubes", done)


async def group_named(ask: Ask) -> LeaseRow:
    """The group that is meant."""
    node = next((one for one in ask.site.watch.nodes.up() if one.short == ask.word("node")), None)
    for row in [] if node is None else await leases_at(node, [ask.word("group")]):
        return row
    raise Refused("No node that answers has this group.")


async def propose_release(ask: Ask) -> Proposal:
    """Jobs of a group back to their queues?"""
    row = await group_named(ask)
    count = sum(one.jobs for one in row.info.batches)
    return Proposal(
        "release",
        f"Release {plural(count, 'job')} of {row.info.group}?",
        f"Release {count:,}",
        "Release",
        f"{row.info.group} of {row.info.owner}",
        [
            f"They go back to {', '.join(row.info.queues)}; others may get them.",
            f"If {row.info.owner} still works on them they may be done twice.",
        ],
        [("group", row.info.group), ("node", row.node[:8])],
        count=count,
        is_danger=True,
    )


async def release(ask: Ask) -> Outcome:
    """Gives them up, under the epoch of now."""
    row = await group_named(ask)
    count = sum(one.jobs for one in row.info.batches)
    client = ask.site.watch.nodes.known[row.node].client
    await client.lease_release(row.info.group, row.info.epoch)
    return Outcome(f"Released {plural(count, 'job')} of {row.info.group}.", link("leases"), count)
