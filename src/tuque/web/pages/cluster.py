"""Cluster, tubes, leases, tenants: may a node stop, is there room, who leads and holds what?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tuque.clusterview.figures import NodeFacts, View
from tuque.clusterview.history import Points
from tuque.clusterview.queues import PAGE, leases_of
from tuque.web.pages.overview import room
from tuque.web.show.charts import Chart, Line, made
from tuque.web.show.text import plural, span
from tuque.web.show.verdict import without
from tuque.web.site import Ask, Page, shared

# ---- Tenants over the cluster, from what each node says of them in INFO (SPEC N11.5)


HEAD: Final = "tenant_"


class Tenant(msgspec.Struct):
    """What one tenant has; jobs and bytes count each copy."""

    name: str
    users: int = 0
    connections: int = 0
    queues: int = 0
    jobs: int = 0
    bytes: int = 0
    refused: int = 0  # commands, by a quota
    share: float = -1.0  # of the quota that is used most at any node, in %; below 0: it has none
    fullest: str = ""  # which quota, and where


def tenants_of(facts: Iterable[NodeFacts]) -> list[Tenant]:
    """The tenants that the nodes name, by name."""
    found: dict[str, Tenant] = {}
    for node in facts:
        for key in node.info:
            if key.startswith(HEAD):
                name = key.removeprefix(HEAD)
                add(found.setdefault(name, Tenant(name)), node.id[:8], node.word(key))
    return [found[name] for name in sorted(found)]


def add(tenant: Tenant, node: str, line: str) -> None:
    """Count what a node says: `jobs=2/10,bytes=6`, a quota behind the `/`."""
    counts = {}
    for part in line.split(","):
        what, _, figures = part.partition("=")
        now, _, most = figures.partition("/")
        counts[what] = int(now) if now.isdigit() else 0
        if now.isdigit() and most.isdigit() and 100 * int(now) / int(most) > tenant.share:
            tenant.share = 100 * int(now) / int(most)
            tenant.fullest = f"{what} at {node}"
    tenant.users = max(tenant.users, counts.get("users", 0))
    tenant.queues = max(tenant.queues, counts.get("queues", 0))
    tenant.connections += counts.get("connections", 0)
    tenant.jobs += counts.get("jobs", 0)
    tenant.bytes += counts.get("bytes", 0)
    tenant.refused += counts.get("refused", 0)


# ---- cluster


NET: Final = (210.0, 130.0, 140.0, 92.0)  # middle, half widths
AWAY: Final = ("fail", "fail?", "noaddr")


async def cluster(ask: Ask) -> Page:
    """May a node stop, and is there room?"""
    view = ask.view
    frame = shared(ask, "cluster")
    boxes, lines = net(ask)
    staying = await ask.site.watch.tubes.staying()
    return Page(
        "cluster",
        {
            **frame,
            "verdict": {"is_away": False, "do": "", **verdict(view, frame["away"], staying)},
            "boxes": boxes,
            "lines": lines,
            "links_up": sum(line["is_up"] for line in lines),
            "charts": [room(ask), turns(ask)],
            "tenants": tenants_of(view.received),
            "away_ids": {node.id for node in frame["away"]},
        },
    )


def verdict(view: View, away: list[Any], staying: int = 0) -> dict[str, Any]:
    """[O14] Whether a node may stop, and why; `staying` tubes do not fail over (O14.19)."""
    facts = view.received
    left = sum(one.number("cluster_repair_left") for one in facts)
    copied = sum(one.number("tubes_incomplete") for one in facts)
    full = [
        (100.0 * one.number("used_memory") / one.number("maxmemory"), one.id[:8])
        for one in facts
        if one.number("maxmemory")
    ]
    buts = [f"{name} uses {share:.0f} % of its memory" for share, name in full if share >= 60]
    buts += [f"{one.id[:8]} is leaving" for one in facts if one.number("is_leaving")]
    if away:
        names = ", ".join(node.short for node in away)
        return {
            "kind": "bad",
            "loud": names,
            "title": "does not answer" if len(away) == 1 else "do not answer",
            "why": without(view, {node.id for node in away}) + "; stop no other node now",
            "buts": buts,
            "is_away": True,
        }
    stuck = [one for one in facts if one.word("aof_last_write_status") not in ("", "ok")]
    if stuck:
        return cannot_write(stuck, buts)
    if len(facts) < 2:
        return {
            "kind": "warn",
            "loud": "This node is alone",
            "title": "",
            "why": "one node keeps one copy of each job; let others join: tuque cluster meet",
            "buts": buts,
        }
    if left or copied:
        which = "1 tube is copied" if copied == 1 else f"{copied:,} tubes are copied"
        which = f"{left:,} jobs have lost copies" if left else which
        return {
            "kind": "warn",
            "loud": "Wait",
            "title": "before a node stops",
            "why": f"repair continues: {which}",
            "buts": buts,
        }
    return may_stop(len(facts), staying, buts)


def cannot_write(stuck: list[NodeFacts], buts: list[str]) -> dict[str, Any]:
    """[J6] The journals of these nodes fail (J6.8): no other one may stop."""
    its = "its journal" if len(stuck) == 1 else "their journals"
    return {
        "kind": "bad",
        "loud": ", ".join(one.id[:8] for one in stuck),
        "title": f"cannot write {its}",
        "why": f"{stuck[0].word('journal_error') or 'journal-fails'}; stop no other node now",
        "buts": buts,
        "do": "Make room on the disk, or see the log of the node: it takes no writes until it can, "
        "then it continues.",
    }


def may_stop(nodes: int, staying: int, buts: list[str]) -> dict[str, Any]:
    """[O14] Any one of these nodes may stop, but for the tubes that do not fail over (O14.19)."""
    reach = f"the {nodes} nodes reach each other and repair is done"
    if staying:
        one = staying == 1
        tubes = "1 tube does" if one else f"{plural(staying, 'tube')} do"
        then = "hands out nothing while its" if one else "hand out nothing while their"
        return {
            "kind": "warn",
            "loud": "Any one node",
            "title": f"may stop now, but for {plural(staying, 'tube')}",
            "why": f"{reach}, and jobs have their copies; {tubes} not fail over, and {then} leader "
            "is away: Tubes moves them before a node stops",
            "buts": buts,
        }
    return {
        "kind": "fine",
        "loud": "Any one node",
        "title": "may stop now",
        "why": f"{reach}; jobs have their copies, and all tubes fail over",
        "buts": buts,
    }


def net(ask: Ask) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The picture of nodes and links."""
    x, y, wide, high = NET
    nodes = sorted(ask.site.watch.nodes.known.values(), key=lambda one: one.place)
    facts = ask.site.watch.facts
    places: dict[str, tuple[float, float]] = {}
    boxes = []
    for i, node in enumerate(nodes):
        angle = -math.pi / 2 + 2 * math.pi * i / len(nodes)
        places[node.id] = (
            round(x + wide * math.cos(angle), 1),
            round(y + high * math.sin(angle), 1),
        )
        known = facts.get(node.id)
        clients = known.number("connected_clients") if known else 0
        leads = known.number("tubes_running") if known else 0
        boxes.append(
            {
                "x": places[node.id][0],
                "y": places[node.id][1],
                "name": node.short,
                "away": node.id in ask.view.old,
                "words": f"{plural(clients, 'client')}, {plural(leads, 'tube')}",
            }
        )
    lines = []
    for i, a in enumerate(nodes):
        for b in nodes[i + 1 :]:
            is_up = a.id not in ask.view.old and b.id not in ask.view.old
            for one, other in ((a, b), (b, a)):
                known = facts.get(one.id)
                seen = [m for m in known.members if m.id == other.id] if known else []
                is_up = is_up and any(
                    m.connected and not any(flag in AWAY for flag in m.flags) for m in seen
                )
            (ax, ay), (bx, by) = places[a.id], places[b.id]
            lines.append(
                {"d": f"M{ax} {ay}L{bx} {by}", "is_up": is_up, "name": f"{a.short} to {b.short}"}
            )
    return boxes, lines


def turns(ask: Ask) -> Chart:
    """How long the loops of the nodes take."""
    points: dict[str, Points] = ask.site.watch.points
    at_s = sorted({at for one in points.values() for at in one.at_s})
    lines = []
    worst = 0.0
    for facts, colour in zip(ask.view.facts, ("s1", "s2", "s3", "s5", "s4", "s6"), strict=False):
        one = points.get(facts.id)
        if one is None or not len(one):
            continue
        level = one.level("loop-p99-us")
        found = dict(zip(one.at_s, level, strict=False))
        values = [found[at] / 1e6 if at in found else None for at in at_s]
        worst = max(worst, (level[-1] if level else 0.0) / 1e6)
        lines.append(Line(facts.id[:8], colour, "line", list(values)))
    answer = f"99 of 100 turns of the slowest loop take {span(worst)} at most." if lines else ""
    return made(
        "Is a node slow?", "turn of the loop, p99, log scale", "span", at_s, lines, answer, log=True
    )


async def tubes(ask: Ask) -> Page:
    """Which node leads each tube, and which copy it?"""
    wanted = ask.word("match")
    found = await ask.site.watch.tubes.page(wanted, ask.start(PAGE))
    return Page(
        "tubes",
        {
            **shared(ask, "tubes"),
            "found": found,
            "wanted": wanted,
            "page_size": PAGE,
            "sessions": ask.view.sum("tubes_sessions"),
            "nodes_by_id": ask.site.watch.nodes.known,
        },
    )


async def leases(ask: Ask) -> Page:
    """Who has leased which jobs, and until when?"""
    wanted = ask.word("match")
    found = await leases_of(ask.site.watch.nodes, wanted, ask.start(PAGE))
    words = {"found": found, "wanted": wanted, "page_size": PAGE}
    return Page("leases", {**shared(ask, "leases"), **words})
