"""Leaders of tubes, as the console shows and changes them.

The leader of a tube knows its tasks and the lag of its replicas: rows come from there. If it is
down, the node asked reports what it knows.
"""

from __future__ import annotations

from typing import Final

import click

from tuque.console.cluster.view import ANSWER_S, ask, known_nodes
from tuque.console.terminal.format import printable
from tuque.console.terminal.link import ErrorReply, Link, LinkError, Reply, Target
from tuque.errors import TubeHome, reply_error

MOVE_S: Final = 600.0  # the reply comes when the switchover is over; the node limits it
HOPS: Final = 3  # redirects followed: a tube may move meanwhile
NO_ANSWER: Final = b"no answer"  # shown as the state when the leader is down


class Nodes:
    """Links to nodes by their addresses, opened when first asked."""

    def __init__(self, first: Link) -> None:
        self.first = first
        self.links: dict[str, Link | None] = {str(first.target): first}  # None: it is down

    def call(self, address: str, words: list[bytes]) -> Reply:
        """The reply of the node at the address; None if it is down."""
        return self.calls(address, [words])[0]

    def calls(self, address: str, commands: list[list[bytes]]) -> list[Reply]:
        """The replies of the node at the address; None for each if it is down."""
        link = self.links.get(address)
        if address not in self.links:
            link = self.links[address] = Link(at_address(address, self.first), ANSWER_S)
        if link is not None:
            try:
                return link.calls(commands)
            except LinkError:
                self.links[address] = None
        return [None] * len(commands)

    def calls_at(self, places: list[str], commands: list[list[bytes]]) -> list[Reply]:
        """The reply to each command from the node at its place, with few requests per node.

        None where the place is "", or its node is down.
        """
        replies: list[Reply] = [None] * len(commands)
        for address in dict.fromkeys(places):
            if address:
                at = [i for i, place in enumerate(places) if place == address]
                told = self.calls(address, [commands[i] for i in at])
                for i, reply in zip(at, told, strict=True):
                    replies[i] = reply
        return replies

    def close(self) -> None:
        """Close all links but the first."""
        for link in self.links.values():
            if link is not None and link is not self.first:
                link.close()


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


def home_of(nodes: Nodes, name: bytes) -> dict[str, Reply]:
    """HOME of the tube from its leader, else from the node asked; empty: no such tube."""
    return homes_of(nodes, [name])[0]


def homes_of(nodes: Nodes, names: list[bytes]) -> list[dict[str, Reply]]:
    """`home_of` for each of the tubes, with a few requests for all."""
    commands = [[b"TUBE", b"HOME", name] for name in names]
    asked = nodes.calls(str(nodes.first.target), commands)
    told = [names_and_values(reply) for reply in asked]
    places = [far_place(one) for one in told]
    far = nodes.calls_at(places, commands)
    return [
        names_and_values(reply) or {**one, "state": NO_ANSWER} if place else one
        for one, place, reply in zip(told, places, far, strict=True)
    ]


def far_place(told: dict[str, Reply]) -> str:
    """The address of the leader in a reply of another node; "" if that node leads, or none."""
    address = text(told.get("address", b""))
    is_here = not told or told.get("state") == b"RUNNING"
    return "" if is_here or not address.rpartition(":")[0] else address


def lag_of(told: dict[str, Reply]) -> str:
    """The largest lag of a replica; `-` if there is none, `+` marks incomplete replicas.

    Only the leader knows it: `-` if that does not answer.
    """
    copies = None if told.get("state") == NO_ANSWER else told.get("copies")
    if not isinstance(copies, list) or not copies:
        return "-"
    rows = [one for one in copies if isinstance(one, list)]
    most = max(int(text(one[2])) for one in rows)
    return f"{most}+" if any(one[3] == 0 for one in rows) else str(most)


def shown_home(told: dict[str, Reply]) -> str:
    """Lines about one tube: its leader, and each replica."""
    home, address = text(told["home"])[:8], text(told["address"])
    lines = [
        f"{printable(text(told['tube']))}: leader {home} at {address}, {text(told['state'])}, "
        f"epoch {text(told['epoch'])}, sync {text(told['sync'])}, {text(told['changes'])} changes"
    ]
    if told["conflict"]:
        lines.append(f"  CONFLICT: node {text(told['conflict'])} claims to lead the tube")
    copies = told["copies"]
    for one in copies if isinstance(copies, list) else []:
        assert isinstance(one, list)
        state = "complete" if one[3] == 1 else "incomplete"
        lines.append(f"  copy {text(one[0])[:8]} at {text(one[1])}: {text(one[2])} behind, {state}")
    return "\n".join(lines)


def as_fields(told: dict[str, Reply]) -> dict[str, object]:
    """A reply about a leader as names and values; replicas as one object each."""
    fields: dict[str, object] = {}
    for key, value in told.items():
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
        at = own if one.is_self else Target(one.host, one.port, "", own.password, own.user)
        if not one.is_meeting and (one.id.startswith(node) or str(at) == node):
            fits.append((one, at))
    if len(fits) != 1:
        what = "several nodes are" if fits else "no node is"
        raise click.ClickException(f"{what} called {node!r}; `tuque cluster status` shows them")
    one, target = fits[0]
    asked = Link(target, MOVE_S)
    told = names_and_values(ask(asked, "TUBE", "HOME", name, one.id, "FORCE"))
    asked.close()
    return {
        "tube": name.encode("utf-8", "surrogateescape"),
        "address": str(target).encode(),
        **told,
    }


def shown_failover(told: dict[str, Reply], count: int) -> str:
    """Lines about a failover in a cluster of so many nodes."""
    name, home = printable(text(told["tube"])), text(told["home"])[:8]
    lines = [f"the leader of {name} is {home} at {text(told['address'])}"]
    for key, value in told.items():
        if key not in ("tube", "home", "address") and value != b"":
            lines.append(f"  {key}: {printable(text(value))}")
    lines.append("it runs after twice cluster-node-timeout, or as soon as all nodes know of it")
    if count == 2:
        lines.append("of two nodes the other one must be down: if it is only cut off, both run")
    return "\n".join(lines)
