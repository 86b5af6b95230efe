"""Tubes and leases as their nodes show them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tuque.aio import Client
from tuque.client.api import to_text
from tuque.client.commands.calls import pairs
from tuque.client.commands.leases import LeaseInfo
from tuque.client.commands.tubes import TubeInfo
from tuque.errors import Error, NoGroup
from tuque.web.read.nodes import Nodes


class TubeRow(msgspec.Struct, frozen=True):
    """A tube at its home: tasks by status, calls, and the copies elsewhere."""

    info: TubeInfo
    calls: dict[str, int]
    copies: list[tuple[str, str, int, bool]]  # node id, address, lag, is whole


async def tubes_of(nodes: Nodes) -> list[TubeRow]:
    """All tubes, each as its home says, or another node if the home is silent."""

    async def names(client: Client) -> list[str]:
        return await client.tube_list()

    listed = await nodes.ask(names)
    known = {name for found in listed.values() for name in found}
    rows = await asyncio.gather(*(tube_of(nodes, name) for name in sorted(known)))
    return [row for row in rows if row is not None]


async def tube_of(nodes: Nodes, name: str) -> TubeRow | None:
    """One tube; None if no node in reach knows it."""
    row: TubeRow | None = None
    for node in nodes.up():
        try:
            tube = node.client.tube(name)
            info, statistics = await tube.info(), await tube.statistics()
            where = pairs(await node.client.execute("TUBE", "HOME", name))
        except Error:
            continue
        row = TubeRow(info, statistics["calls"], [copy_of(one) for one in where.get("copies", [])])
        if info.home == node.id:
            break
    return row


def copy_of(reply: Any) -> tuple[str, str, int, bool]:
    """A copy of a tube elsewhere."""
    id, address, lag, is_whole = reply
    return to_text(id), to_text(address), int(lag), bool(is_whole)


class LeaseRow(msgspec.Struct, frozen=True):
    """A group, and the node that has it."""

    node: str
    info: LeaseInfo


async def leases_of(nodes: Nodes) -> list[LeaseRow]:
    """All groups of all nodes."""

    async def question(client: Client) -> list[LeaseInfo]:
        found = []
        for group in await client.lease_list():
            try:
                found.append(await client.lease_info(group))
            except NoGroup:
                continue
        return found

    answers = await nodes.ask(question)
    rows = [LeaseRow(id, info) for id, infos in answers.items() for info in infos]
    return sorted(rows, key=lambda row: (row.info.group, row.node))
