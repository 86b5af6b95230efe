"""Cluster, tubes, leases: may a node stop, has each room, who leads what, who has leased what?"""

from __future__ import annotations

import math
from typing import Any, Final

from tuque.web.pages.overview import room
from tuque.web.read.figures import NodeFacts
from tuque.web.read.history import Points
from tuque.web.read.tubes import leases_of, tubes_of
from tuque.web.show.charts import Chart, Line, made
from tuque.web.show.text import plural, span
from tuque.web.site import Ask, Page, shared

NET: Final = (210.0, 130.0, 140.0, 92.0)  # middle, half widths
AWAY: Final = ("fail", "fail?", "noaddr")


async def cluster(ask: Ask) -> Page:
    """May a node stop, and has each room?"""
    view = ask.view
    frame = shared(ask, "cluster")
    tubes = await tubes_of(ask.site.watch.nodes)
    boxes, lines = net(ask, {row.info.home: 0 for row in tubes} | homes(tubes))
    return Page(
        "cluster",
        {
            **frame,
            "verdict": verdict(view.facts, frame["away"], tubes),
            "boxes": boxes,
            "lines": lines,
            "links_up": sum(line["is_up"] for line in lines),
            "charts": [room(ask), turns(ask)],
            "away_ids": {node.id for node in frame["away"]},
        },
    )


def homes(tubes: list[Any]) -> dict[str, int]:
    """How many tubes each node leads."""
    counts: dict[str, int] = {}
    for row in tubes:
        counts[row.info.home] = counts.get(row.info.home, 0) + 1
    return counts


def verdict(facts: list[NodeFacts], away: list[Any], tubes: list[Any]) -> dict[str, Any]:
    """Whether a node may stop, and why."""
    left = sum(one.number("cluster_repair_left") for one in facts)
    lag = [row.info.name for row in tubes if any(not copy[3] for copy in row.copies)]
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
            "why": "jobs with copies elsewhere go on; stop no other node now",
            "buts": buts,
        }
    if len(facts) < 2:
        return {
            "kind": "warn",
            "loud": "This node is alone",
            "title": "",
            "why": "one node keeps one copy of each job; let others join: tuque cluster meet",
            "buts": buts,
        }
    if left or lag:
        which = f"{left} jobs have lost copies" if left else f"{', '.join(lag)} is copied"
        return {
            "kind": "warn",
            "loud": "Wait",
            "title": "before a node stops",
            "why": f"repair goes on: {which}",
            "buts": buts,
        }
    reach = f"the {len(facts)} nodes reach each other and repair is done"
    return {
        "kind": "fine",
        "loud": "Any one node",
        "title": "may stop now",
        "why": f"{reach}; jobs have their copies, and tubes are whole elsewhere",
        "buts": buts,
    }


def net(ask: Ask, leads: dict[str, int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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
        boxes.append(
            {
                "x": places[node.id][0],
                "y": places[node.id][1],
                "name": node.short,
                "away": node.id in ask.view.old,
                "words": f"{plural(clients, 'client')}, {plural(leads.get(node.id, 0), 'tube')}",
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
    """Where is each tube at home, and who copies it?"""
    rows = await tubes_of(ask.site.watch.nodes)
    return Page(
        "tubes",
        {
            **shared(ask, "tubes"),
            "rows": rows,
            "sessions": ask.view.sum("tubes_sessions"),
            "nodes_by_id": ask.site.watch.nodes.known,
        },
    )


async def leases(ask: Ask) -> Page:
    """Who has leased which jobs, and until when?"""
    rows = await leases_of(ask.site.watch.nodes)
    return Page("leases", {**shared(ask, "leases"), "rows": rows})
