"""The state of a cluster: one node's list, and each node's own data.

Decides which nodes are asked, what a row of the table holds and when a node is unwell.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from tuque.aio import Client
from tuque.client.api import ClusterNode
from tuque.client.commands.tubes import TubeInfo, info
from tuque.client.transport.raw_link import Target
from tuque.clusterview.view import FAILS, NodesInReach
from tuque.terminal import printable


@dataclass
class Row:
    """One node as the node asked sees it, with its own data if it responds."""

    id: str  # empty during a meeting
    host: str
    port: int
    state: str  # one word, or `safe to stop`
    reason: str = ""
    is_self: bool = False  # it is the node asked
    fault: str = ""  # why its journal cannot be written, if it says so
    full: str = ""  # what it has too little of to take jobs
    leads: int = 0  # tubes that run there
    answers: bool = False
    reaches: int | None = None  # other nodes
    jobs: int | None = None
    queued: int | None = None
    clients: int | None = None
    memory_bytes: int | None = None
    memory: str = ""
    to_repair: int | None = None
    to_drain: int | None = None
    voters: int = 0  # in force there
    votes: bool = False  # it is one of them, and can vote
    users: str = ""  # digest of users and rights
    homeless: list[str] = field(default_factory=list)  # tubes whose leader it cannot reach
    homeless_count: int = 0  # of all of them: it names at most 20
    led: dict[str, int] = field(default_factory=dict)  # tubes that it became the leader of, by why

    @property
    def is_meeting(self) -> bool:
        return self.state == "meeting"

    @property
    def name(self) -> str:
        """The first characters of the id; a star marks the node asked."""
        return (self.id[:8] or "(new)") + (" *" if self.is_self else "")

    @property
    def address(self) -> str:
        return str(Target(self.host, self.port))

    @property
    def shown_state(self) -> str:
        """The state, with its reason if known."""
        text = f"{self.state}: {self.reason}" if self.reason else self.state
        is_silent = self.state == "up" and not self.answers
        return f"{text}, no answer" if is_silent else text


async def rows_of(nodes: NodesInReach) -> list[Row]:
    """The nodes of the cluster, with the figures of those that respond."""
    found = await nodes.ask(Client.info)
    rows = []
    for node in nodes.members:
        is_self, is_meeting = "myself" in node.flags, "handshake" in node.flags
        id = "" if is_meeting else node.id
        host = nodes.host if is_self and not node.host else node.host
        row = Row(id, host, node.port, state_of(node), node.reason, is_self)
        if node.id in found and not is_meeting:
            fill(row, found[node.id])
        rows.append(row)
    return rows


def state_of(node: ClusterNode) -> str:
    """The state of a node in a word or two, as the node asked sees it."""
    if FAILS in node.flags:
        return FAILS
    for flag, word in (("fail", "failed"), ("fail?", "suspected"), ("handshake", "meeting")):
        if flag in node.flags:
            return word
    if "leaving" in node.flags:
        return "leaving"
    return "up" if node.connected else "no link"


def fill(row: Row, info: dict[str, str | int]) -> None:
    """Adds what the node says of itself."""
    row.answers = True
    row.reaches = int(info.get("cluster_reachable_nodes", 0))
    row.jobs = int(info.get("registered_jobs", 0))
    row.queued = int(info.get("queued_jobs", 0))
    row.clients = int(info.get("connected_clients", 0))
    row.memory = str(info.get("used_memory_human", ""))
    row.memory_bytes = int(info.get("used_memory", 0))
    row.to_repair = int(info.get("cluster_repair_left", 0))
    row.users = str(info.get("users_digest", ""))
    row.voters = int(info.get("tubes_voters", 0))
    row.votes = info.get("tubes_votes") == 1
    row.homeless_count = int(info.get("tubes_homeless", 0))
    row.leads = int(info.get("tubes_running", 0))
    row.led = {
        reason: sum(int(info.get(f"tubes_{name}", 0)) for name in names)
        for reason, names in WHY_LED.items()
    }
    names = str(info.get("tubes_homeless_names", ""))
    row.homeless = [unquote(name, errors="backslashreplace") for name in names.split(",") if name]
    if info.get("cluster_leaving") == "yes":
        row.state = "leaving" if info.get("cluster_safe_to_stop") != "yes" else "safe to stop"
        row.to_drain = int(info.get("cluster_drain_left", 0))
    if info.get("aof_last_write_status", "ok") != "ok":
        row.state, row.fault = FAILS, str(info.get("journal_error", ""))
    elif info.get("journal_disk_short") == 1:
        row.full = "its disk is nearly full"
    elif info.get("memory_level") == 3:
        row.full = "its memory is used up"
    if info.get("cluster_state", "ok") != "ok":
        row.state = str(info["cluster_state"])


LEAVES: Final = ("leaving", "safe to stop")
# why a node became the leader of a tube that had one before: the figures of INFO that count it
WHY_LED: Final = {
    "silent": ("elections_silent",),
    "gave_up": ("elections_gave_up",),
    "given": ("elections_given", "homes_given"),
    "again": ("elections_again",),
    "forced": ("elections_forced",),
    "command": ("homes_by_command",),
}
SAID_LED: Final = {
    "silent": "the leader was silent",
    "gave_up": "the leader gave up",
    "given": "the leader gave it away",
    "again": "it led before",
    "forced": "forced, as no voter had all of it",
    "command": "by command, without the leader",
}


def unwell(rows: list[Row]) -> list[str]:
    """What is wrong, one sentence each: nodes that are not up, or do not see all others.

    A failing meeting is no fault of the cluster.
    """
    lines = []
    up = sum(row.shown_state == "up" for row in rows)
    for row in rows:
        others = up - (row.shown_state == "up")
        if row.is_meeting:
            continue
        if row.shown_state not in ("up", *LEAVES):
            lines.append(f"{row.address}: {row.shown_state}")
        elif row.reaches is not None and row.reaches < others:
            lines.append(f"{row.address} reaches {row.reaches} of {others} other nodes")
    return lines


def failing(rows: list[Row]) -> list[str]:
    """A line for each node that takes no writes, or no jobs, with what to do (J6.8, J6.9, M2)."""
    fails = [
        f"{row.address}: its journal cannot be written: "
        f"{printable(row.fault) or 'see its log, and make room on its disk'}; "
        "it takes no writes until it can, then it continues"
        for row in rows
        if row.state == FAILS
    ]
    return fails + [
        f"{row.address}: {row.full}: it takes no jobs until some have ended, or it has more room"
        + (leading(row.leads) if row.leads else "")
        for row in rows
        if row.full
    ]


def leading(count: int) -> str:
    """What a node without room leads, and what to do about it."""
    tubes = f"the {count:,} tubes that it leads take"
    if count == 1:
        tubes = "the tube that it leads takes"
    return f"; {tubes} none either: `tuque tubes home TUBE NODE` moves one to a node with room"


async def led_by_votes(nodes: NodesInReach, rows: list[Row]) -> dict[str, bool]:
    """Of each tube whose leader a node cannot reach, as far as the node asked knows: T23.5."""
    names = sorted({name for row in rows for name in row.homeless})
    asked = [info(name.encode("utf-8", "replace")) for name in names]
    found = zip(names, await nodes.run_here(asked), strict=True)
    return {name: one.failover for name, one in found if isinstance(one, TubeInfo)}


def homeless(rows: list[Row], by_vote: dict[str, bool]) -> list[str]:
    """[T11] Tubes whose leader a node cannot reach, a sentence each, and how many more (T11.5).

    `by_vote` says which fail over by themselves, where that is known.
    """
    names = sorted({name for row in rows for name in row.homeless})
    more = max((row.homeless_count for row in rows), default=0) - len(names)
    what = "more" if names else "tubes whose leader is unreachable"
    rest = [f"{'and ' if names else ''}{more:,} {what}: see `tuque tubes`"] if more > 0 else []
    unknown = None if any(row.voters for row in rows) else False
    return [lost_home(name, by_vote.get(name, unknown)) for name in names] + rest


def lost_home(name: str, is_by_vote: bool | None) -> str:
    """What to do about a tube whose leader cannot be reached; None: it may fail over by itself."""
    what = f"tube {printable(name)}: its leader is unreachable"
    if is_by_vote:
        return f"{what}; a majority of the voters chooses another one: see CLUSTER VOTERS"
    unless = "it does not fail over automatically and " if is_by_vote is None else ""
    command = f"tuque tubes home {shlex.quote(printable(name))} NODE --force"
    return f"{what}; if {unless}that is lost for good: {command}"


def voting(rows: list[Row]) -> list[str]:
    """[T23] A line about the nodes that vote about leaders of tubes, if any do."""
    voters, can_vote = votes_of(rows)
    if voters == 0:
        return []
    if can_vote > voters:
        return ["the nodes go by different lists of voters: see origin in CLUSTER VOTERS"]
    line = f"{can_vote} of {voters} voters can vote"
    if can_vote <= voters // 2:
        return [f"{line}: tubes have no leader until a majority of them is back"]
    return [line if can_vote == voters else f"{line}: see CLUSTER VOTERS"]


def votes_of(rows: list[Row]) -> tuple[int, int]:
    """The number of voters, and of the nodes that can vote: the same where all is well."""
    return max((row.voters for row in rows), default=0), sum(row.votes for row in rows)


def new_leaders(rows: list[Row]) -> list[str]:
    """[T11] A line about the tubes that got another leader, and why, if any did (T11.5)."""
    counts = {reason: sum(row.led.get(reason, 0) for row in rows) for reason in WHY_LED}
    total = sum(counts.values())
    if not total:
        return []
    why = ", ".join(f"{count:,} {SAID_LED[name]}" for name, count in counts.items() if count)
    times = "once" if total == 1 else f"{total:,} times"
    return [f"tubes got another leader {times} since the nodes began: {why}"]


def uneven(rows: list[Row]) -> list[str]:
    """[N7] What is said of nodes with other users or rights than the first one (N7.4)."""
    known = [row for row in rows if row.users]
    return [
        f"{row.address} has other users or rights than {known[0].address}: see ACL LIST of both"
        for row in known[1:]
        if row.users != known[0].users
    ]


def as_fields(row: Row) -> dict[str, object]:
    """One node for programs: whole ids, numbers, one fact per field."""
    return {
        "id": row.id or None,
        "asked": row.is_self,
        "host": row.host,
        "port": row.port,
        "state": row.state,
        "reason": row.reason or row.fault or None,
        "answers": row.answers,
        "reaches": row.reaches,
        "jobs": row.jobs,
        "queued": row.queued,
        "clients": row.clients,
        "memory_bytes": row.memory_bytes,
        "to_repair": row.to_repair,
        "to_drain": row.to_drain,
        "homeless_tubes": row.homeless,
        "homeless_count": row.homeless_count if row.answers else None,
        "leader_changes": row.led if row.answers else None,
        "users_digest": row.users or None,
    }
