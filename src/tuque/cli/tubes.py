"""`tuque tubes`: the tubes of a cluster, their leaders, keys that wait, groups of jobs, values.

Decides what a line shows; the figures come from the tube's leader (TUBE LIST, INFO, HOME).
"""

from __future__ import annotations

from itertools import islice
from typing import Final, get_args

import click

from tuque import terminal
from tuque.cli.cluster import ask, is_meeting, is_self, known_nodes, node_asked
from tuque.cli.jobs import (
    HELP,
    at,
    client_of,
    fields,
    lines_of,
)
from tuque.client.commands.admin import execute
from tuque.client.commands.groups import ChildEnd, GroupStatus, JobGroup
from tuque.client.commands.operate import KeyRow
from tuque.client.commands.values import ValueRow
from tuque.client.transport.conn import ErrorReply
from tuque.client.transport.raw_link import Link, LinkError, Reply, Target
from tuque.clusterview.view import NodesInReach, asked
from tuque.completion import queue_names
from tuque.errors import Error, TubeHome, reply_error
from tuque.lazygroup import FiniteRange
from tuque.nodeoptions import NodeOptions, node_options, refuse_before
from tuque.terminal import echo_each, json_line, printable

# ---- Leaders of tubes, as the commands show and changes them.
#
# The leader of a tube knows its tasks and the lag of its replicas: rows come from there. If it is
# down, the node asked reports what it knows.


MOVE_S: Final = 600.0  # the reply comes when the switchover is over; the node limits it
HOPS: Final = 3  # redirects followed: a tube may move meanwhile
NO_ANSWER: Final = b"no answer"  # shown as the state when the leader is down


def at_address(address: str, like: Link) -> Target:
    """A node by its `host:port`, with the password of the first one."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise click.ClickException(f"{address!r} is no host:port")
    target = like.target
    return Target(host.strip("[]"), int(port), "", target.password, target.user)


def names_and_values(flat: Reply) -> dict[str, Reply]:
    """Names and values of a flat array; empty for anything else."""
    if not isinstance(flat, list):
        return {}
    return {text(name): value for name, value in zip(flat[::2], flat[1::2], strict=False)}


def text(value: Reply) -> str:
    """A value as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


async def homes_of(nodes: NodesInReach, names: list[bytes]) -> list[dict[str, Reply] | Error]:
    """HOME of each tube from its leader, else from the node asked; an error: no such tube."""
    calls = [execute("TUBE", "HOME", name) for name in names]
    near = await nodes.run_here(calls)
    answers = [names_and_values(reply) for reply in near]
    places = [far_place(one) for one in answers]
    far = await nodes.run_at(places, calls)
    return [
        error
        if isinstance(error, Error)
        else names_and_values(reply) or ({**one, "state": NO_ANSWER} if place else one)
        for error, one, place, reply in zip(near, answers, places, far, strict=True)
    ]


def far_place(answer: dict[str, Reply]) -> str:
    """The address of the leader in a reply of another node; "" if that node leads, or none."""
    address = text(answer.get("address", b""))
    is_here = not answer or answer.get("state") == b"RUNNING"
    return "" if is_here or not address.rpartition(":")[0] else address


def lag_of(answer: dict[str, Reply]) -> str:
    """The largest lag of a replica; `-` if there is none, `+` marks incomplete replicas.

    Only the leader knows it: `-` if that does not answer.
    """
    copies = None if answer.get("state") == NO_ANSWER else answer.get("copies")
    if not isinstance(copies, list) or not copies:
        return "-"
    rows = [one for one in copies if isinstance(one, list)]
    most = max(int(text(one[2])) for one in rows)
    return f"{most}+" if any(one[3] == 0 for one in rows) else str(most)


def shown_home(answer: dict[str, Reply]) -> str:
    """Lines about one tube: its leader, and each replica."""
    home, address = text(answer["home"])[:8], text(answer["address"])
    lines = [
        f"{printable(text(answer['tube']))}: leader {home} at {address}, {text(answer['state'])}, "
        f"epoch {text(answer['epoch'])}, sync {text(answer['sync'])}, "
        f"{text(answer['changes'])} changes"
    ]
    if answer["conflict"]:
        lines.append(f"  CONFLICT: node {text(answer['conflict'])} claims to lead the tube")
    copies = answer["copies"]
    for one in copies if isinstance(copies, list) else []:
        assert isinstance(one, list)
        state = "complete" if one[3] == 1 else "incomplete"
        lines.append(f"  copy {text(one[0])[:8]} at {text(one[1])}: {text(one[2])} behind, {state}")
    return "\n".join(lines)


def as_fields(answer: dict[str, Reply]) -> dict[str, object]:
    """A reply about a leader as names and values; replicas as one object each."""
    fields: dict[str, object] = {}
    for key, value in answer.items():
        if key == "copies" and isinstance(value, list):
            rows = [one for one in value if isinstance(one, list)]
            fields[key] = [
                {"node": text(one[0]), "address": text(one[1]), "lag": one[2],
                 "complete": one[3] == 1}
                for one in rows
            ]  # fmt: skip
        else:
            fields[key] = value if isinstance(value, int) else text(value)
    return fields


def move(link: Link, name: str, node: str) -> None:
    """Ask the tube's leader for a switchover. ClickException if it fails."""
    words = [b"TUBE", b"HOME", name.encode("utf-8", "surrogateescape"), node.encode()]
    target = link.target
    for _ in range(HOPS):
        asked = Link(target, MOVE_S)
        try:
            reply = asked.call(words)
        except LinkError as err:
            raise click.ClickException(
                str(err)
                if err.sent or target is link.target
                else f"the leader of {name} at {target} cannot be reached; "
                "if it is lost for good, --force gives it up"
            ) from None
        finally:
            asked.close()
        if not isinstance(reply, ErrorReply):
            return
        refusal = reply_error(reply)
        if not isinstance(refusal, TubeHome):
            raise click.ClickException(f"{target}: {reply}")
        target = at_address(refusal.home, link)
    raise click.ClickException(f"the leader of {name} changes: try again")


def take_over(link: Link, name: str, node: str) -> dict[str, Reply]:
    """Make a node the leader although the old leader is lost; report the losses (T21.3)."""
    own = link.target
    fits = []
    for one in known_nodes(link):
        at = own if is_self(one) else Target(one.host, one.port, "", own.password, own.user)
        if not is_meeting(one) and (one.id.startswith(node) or str(at) == node):
            fits.append((one, at))
    if len(fits) != 1:
        what = "several nodes are" if fits else "no node is"
        raise click.ClickException(f"{what} called {node!r}; `tuque cluster status` shows them")
    one, target = fits[0]
    asked = Link(target, MOVE_S)
    answer = names_and_values(ask(asked, "TUBE", "HOME", name, one.id, "FORCE"))
    asked.close()
    return {
        "tube": name.encode("utf-8", "surrogateescape"),
        "address": str(target).encode(),
        **answer,
    }


def shown_failover(answer: dict[str, Reply], count: int) -> str:
    """Lines about a failover in a cluster of so many nodes."""
    name, home = printable(text(answer["tube"])), text(answer["home"])[:8]
    lines = [f"the leader of {name} is {home} at {text(answer['address'])}"]
    for key, value in answer.items():
        if key not in ("tube", "home", "address") and value != b"":
            lines.append(f"  {key}: {printable(text(value))}")
    lines.append("it runs after twice cluster-node-timeout, or as soon as all nodes know of it")
    if count == 2:
        lines.append("of two nodes the other one must be down: if it is only cut off, both run")
    return "\n".join(lines)


# ---- `tuque tubes limits`: the keys for which jobs of a tube wait. Decides what a line shows


@click.command(context_settings={"help_option_names": ["--help"]})
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--count", type=click.IntRange(1), default=50, help="Show so many at most (50).")
@click.argument("queue", shell_complete=queue_names)
def limits(node: NodeOptions, as_json: bool, count: int, queue: str) -> None:
    """Show the keys of QUEUE for which jobs wait, and its groups.

    QUEUE is a tube of type tasks. Limits come first, then rates, each with the longest wait first.
    """
    with client_of(node, is_here=False) as client:
        rows = client.limits(queue, count=min(count + 1, 1_000))
        echo_each(
            islice(rows, count),
            lambda row: json_line(fields(row)) if as_json else key_line(row),
            f"no limits, rates or groups in {queue}",
        )
        if next(rows, None) is not None:
            click.echo(f"there are more than {count:,}: --count shows them", err=True)


def key_line(row: KeyRow) -> str:
    """A key on one line: what it has, who waits, and since when."""
    if row.kind == "limit":
        has = f"{row.used} of {row.places} places used"
    elif row.kind == "rate":
        has = f"{rate_words(row.token_us)}, {row.tokens} of {row.burst} tokens"
    else:
        has = f"weight {row.weight} of {row.weights}"
    words = [row.kind, row.key, has, f"{row.waiting} wait"]
    if row.since_ms:
        words.append(f"since {at(row.since_ms)}")
    return printable("  ".join(words))


def rate_words(token_us: int) -> str:
    """A rate in the unit in which it is at least 1: 10/s, 90/m, 5/h."""
    for unit, seconds in (("s", 1), ("m", 60), ("h", 3600)):
        count = seconds * 1_000_000 / token_us
        if count >= 0.999999 or unit == "h":
            break
    return f"{count:.4g}/{unit}"


# ---- `tuque tubes group`: groups of jobs, how far they are, and their cancel.
#
# Decides what a line shows; the leader of the tube does the work.


@click.group(context_settings=HELP)
def group() -> None:
    """Groups of jobs: a callback is added when all children have ended."""


@group.command("list", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--state", type=click.Choice(get_args(GroupStatus)), help="Groups of that state only."
)
@click.argument("queue", shell_complete=queue_names)
def list_groups(node: NodeOptions, as_json: bool, state: GroupStatus | None, queue: str) -> None:
    """List the groups of QUEUE that have not become their callback, one a line."""
    with client_of(node, is_here=False) as client:
        echo_each(
            client.groups(queue, state=state),
            lambda one: json_line(fields(one)) if as_json else row(one),
            f"no groups in {queue}" + ("" if state is None else f" are {state}"),
        )


@group.command("show", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--children", is_flag=True, help="The children as well, one a line.")
@click.argument("queue", shell_complete=queue_names)
@click.argument("id")
def show_group(node: NodeOptions, as_json: bool, children: bool, queue: str, id: str) -> None:
    """Show all of one group."""
    with client_of(node, is_here=False) as client:
        found = client.group_show(queue, id)
        click.echo(json_line(fields(found)) if as_json else lines_of(found))
        if children:
            for one in client.group_results(queue, id):
                click.echo(json_line(fields(one)) if as_json else child_row(one))


@group.command("cancel", context_settings=HELP)
@node_options
@click.argument("queue", shell_complete=queue_names)
@click.argument("id")
def cancel_group(node: NodeOptions, queue: str, id: str) -> None:
    """Cancel a group: its callback does not run, open children are cancelled."""
    with client_of(node, is_here=False) as client:
        is_done = client.group_cancel(queue, id)
    click.echo("cancelled" if is_done else "it was over")


def row(one: JobGroup) -> str:
    """A group on one line."""
    ended = f"{one.done + one.failed}/{one.children} ended"
    words = [at(one.created_ms), one.id, one.state, ended, f"{one.failed} failed"]
    if one.dead:
        words.append(f"{one.dead} dead: waits for a replay")
    return printable("  ".join(words))


def child_row(one: ChildEnd) -> str:
    """A child on one line."""
    is_awaited = one.state == "open" and one.how == "dead"
    how = f"{one.how}, waits for a replay" if is_awaited else one.how
    words = [f"{one.index:>6}", one.id, how, one.reason]
    return printable("  ".join(words).rstrip())


# ---- tubes


COLUMNS: Final = ("ready", "taken", "delayed", "buried")
WAITING: Final = ("waiting-takes", "waiting-puts")
TIMES: Final = ("ttl", "ttr")


# ---- `tuque tubes value`: what a tube keeps under names. The leader of the tube does the work


@click.group(context_settings=HELP)
def value() -> None:
    """Values: results, counters and sets of parts under names, until they end."""


@value.command("list", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--match", metavar="GLOB", help="Names that match only.")
@click.argument("queue", shell_complete=queue_names)
def list_values(node: NodeOptions, as_json: bool, match: str | None, queue: str) -> None:
    """List the values of QUEUE in the order in which they were first set, one a line."""
    with client_of(node, is_here=False) as client:
        echo_each(
            client.value_scan(queue, match=match),
            lambda one: json_line(fields(one)) if as_json else value_line(one),
            f"no values in {queue}",
        )


def value_line(one: ValueRow) -> str:
    """A value on one line."""
    size = f"{one.size:,} parts" if one.kind == "parts" else f"{one.size:,} bytes"
    until = f"until {at(one.end_ms)}" if one.end_ms else "without an end"
    return printable("  ".join([one.name, one.kind, size, until]))


@value.command("get", context_settings=HELP)
@node_options
@click.argument("queue", shell_complete=queue_names)
@click.argument("name")
def get_value(node: NodeOptions, queue: str, name: str) -> None:
    """Print the value NAME of QUEUE; status 1 if there is none."""
    with client_of(node, is_here=False) as client:
        found = client.value_get(queue, name)[name]
    if found is None:
        raise click.ClickException(f"{printable(queue)} has no value '{printable(name)}'")
    click.echo(printable(found.decode("utf-8", "backslashreplace")))


@value.command("set", context_settings=HELP)
@node_options
@click.option("--ttl", type=FiniteRange(), metavar="SECONDS", help="A day by default; 0: no end.")
@click.option("--end", is_flag=True, help="End the waits for it.")
@click.option("--fixed", is_flag=True, help="No later set changes it.")
@click.option("--new", is_flag=True, help="Only if there is none of that name.")
@click.argument("queue", shell_complete=queue_names)
@click.argument("name")
@click.argument("text")
def set_value(
    node: NodeOptions,
    ttl: float | None,
    end: bool,
    fixed: bool,
    new: bool,
    queue: str,
    name: str,
    text: str,
) -> None:
    """Have TEXT be the value NAME of QUEUE."""
    with client_of(node, is_here=False) as client:
        is_new = client.value_set(queue, name, text, ttl=ttl, end=end, fixed=fixed, new=new)
    click.echo("set" if is_new else "unchanged")


@value.command("drop", context_settings=HELP)
@node_options
@click.argument("queue", shell_complete=queue_names)
@click.argument("name", nargs=-1, required=True)
def drop_values(node: NodeOptions, queue: str, name: tuple[str, ...]) -> None:
    """Remove values, and sets with their parts; prints how many there were."""
    with client_of(node, is_here=False) as client:
        click.echo(client.value_drop(queue, *name))


@click.group(
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help"]},
)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@click.pass_context
def tubes(context: click.Context, node: NodeOptions, as_json: bool) -> None:
    """Show every tube: its type, home, tasks by state, and waiting clients.

    The home of a tube is its leader. LAG is how many changes the slowest replica lacks, with a +
    while one is incomplete. WAITING is how many takes and puts wait. Only a tube that is RUNNING
    has figures. A tube that delivers no task, since its type is missing or failed, is marked
    STOPPED, and a line below says why. Exit status 1 when the node does not answer.
    """
    if context.invoked_subcommand is not None:
        refuse_before(context)
        return

    async def seen(nodes: NodesInReach) -> tuple[list[dict[str, object]], int]:
        return await rows_of(nodes), sum(not is_meeting(one) for one in nodes.members)

    rows, size = asked(node, seen)
    if as_json:
        click.echo(json_line(rows))
    elif rows:
        click.echo("\n".join([table(rows), *(staying(rows) if size >= FAIL_OVER_FROM else [])]))
    else:
        click.echo("no tubes; `tuque cli TUBE CREATE name type` makes one")


tubes.add_command(limits)
tubes.add_command(group)
tubes.add_command(value)


@tubes.command()
@node_options
@click.option("--force", is_flag=True, help="The leader is lost: NODE takes over with its replica.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.argument("name")
@click.argument("leader", metavar="[NODE]", required=False, default="")
def home(
    node: NodeOptions,
    force: bool,
    as_json: bool,
    name: str,
    leader: str,
) -> None:
    """Show the leader of the tube NAME, or make NODE its leader.

    NODE is a node id, its first characters, or host:port. With --force NODE takes over from a
    leader that is unreachable: changes that only the old leader had are lost, and the reply shows
    what is known of them.
    """
    if force and not leader:
        raise click.UsageError("--force needs NODE: the node that takes over")
    with node_asked(node) as link:
        if force:
            answer = take_over(link, name, leader)
            shown_lines = shown_failover(answer, len(known_nodes(link)))
        elif leader:
            move(link, name, leader)
    if not force:
        answer = asked(node, lambda nodes: home_of(nodes, name))
        shown_lines = f"the leader of {name} is {leader}" if leader else shown_home(answer)
    click.echo(json_line(as_fields(answer)) if as_json else shown_lines)


async def home_of(nodes: NodesInReach, name: str) -> dict[str, Reply]:
    """HOME of the tube, from its leader. Raises what the node asked refuses: no such tube."""
    (answer,) = await homes_of(nodes, [name.encode("utf-8", "surrogateescape")])
    if isinstance(answer, Error):
        raise answer
    return answer


async def rows_of(nodes: NodesInReach) -> list[dict[str, object]]:
    """INFO of each tube by name, from its leader; tubes dropped meanwhile are left out."""
    listed = await nodes.first.client.execute("TUBE", "LIST")
    names = [name for name in listed if isinstance(name, bytes)]
    homes = [{} if isinstance(one, Error) else one for one in await homes_of(nodes, names)]
    calls = [execute("TUBE", "INFO", name) for name in names]
    infos = await nodes.run_at([text(where.get("address", b"")) for where in homes], calls)
    unknown = [i for i, answer in enumerate(infos) if not isinstance(answer, list)]
    here = await nodes.run_here([calls[i] for i in unknown])
    for i, answer in zip(unknown, here, strict=True):
        infos[i] = answer
    rows = []
    for where, answer in zip(homes, infos, strict=True):
        if isinstance(answer, list):
            row = fields_of(answer)
            lag = "-" if row["temporary"] else lag_of(where)  # T18.1: it has no replicas
            row.update(address=value_of(where.get("address")), lag=lag)
            row["state"] = value_of(where["state"]) if where else row["state"]
            rows.append(row)
    return sorted(rows, key=lambda row: str(row["name"]))


def fields_of(flat: list[Reply]) -> dict[str, object]:
    """Names and values, texts decoded."""
    return {
        str(value_of(name)): value_of(value)
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }


def value_of(value: Reply) -> object:
    """Bytes as text, anything else unchanged."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def kind(row: dict[str, object]) -> str:
    """The type, and special properties of the tube."""
    marks = ["temporary"] if row["temporary"] else []
    if row["capacity"]:
        marks.append(f"capacity {row['capacity']}")
    return f"{row['type']} ({', '.join(marks)})" if marks else str(row["type"])


def seconds(value: object) -> str:
    """A time of INFO with its unit."""
    return "-" if value == "forever" else f"{value} s"


HEADS: Final = ("TUBE", "TYPE", "LEADER", "STATE", "LAG", *map(str.upper, COLUMNS), "WAITING")
LEAST: Final = ("TTR", "TTL", "WAITING", "BURIED", "DELAYED")  # left out first on narrow terminals


def table(rows: list[dict[str, object]]) -> str:
    """A heading and a line for each tube, and why tubes deliver nothing."""
    lines = []
    for row in rows:
        is_running = row["state"] == "RUNNING"
        figures = [figure(row[name]) if is_running else "-" for name in COLUMNS]
        takes, puts = (row[name] for name in WAITING)
        figures.append(f"{takes} + {puts}" if is_running and (takes or puts) else "-")
        state = f"{row['state']} STOPPED" if is_running and row.get("stopped") else row["state"]
        where = [str(row["home"])[:8], str(state), str(row["lag"])]
        times = [seconds(row[name]) for name in TIMES]
        lines.append([printable(str(row["name"])), printable(kind(row)), *where, *figures, *times])

    def color(at: int, head: str, text: str) -> str:
        return terminal.paint(text, color_of(rows[at])) if head == "STATE" else text

    shown_lines = [terminal.table([*HEADS, *map(str.upper, TIMES)], lines, 4, LEAST, color)]
    for row in rows:
        if row["state"] == "RUNNING" and row.get("stopped"):
            name, why = printable(str(row["name"])), printable(str(row["stopped"]))
            shown_lines.append(f"{name} delivers no task: {why}")
    return "\n".join(shown_lines)


FAIL_OVER_FROM: Final = 3  # nodes
NAMED_MAX: Final = 10


def staying(rows: list[dict[str, object]]) -> list[str]:
    """A line about the tubes that do not fail over, if there are any (T23.5)."""
    names = [
        printable(str(row["name"]))
        for row in rows
        if row.get("failover") == 0 and not row["temporary"]
    ]
    if not names:
        return []
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    return [
        f"no failover: {', '.join(names[:NAMED_MAX])}{more}. Without its leader such a tube waits "
        "for it, or for `tuque tubes home TUBE NODE --force`"
    ]


def figure(value: object) -> str:
    """A number of INFO for people."""
    return terminal.number(value) if isinstance(value, int) else str(value)


def color_of(row: dict[str, object]) -> str:
    """Good, or bad."""
    return terminal.GOOD if row["state"] == "RUNNING" and not row.get("stopped") else terminal.BAD
