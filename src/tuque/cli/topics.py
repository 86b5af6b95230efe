"""`tuque topics`: which queues get the jobs of which topics.

Decides what a line shows.
"""

from __future__ import annotations

import click

from tuque.cli.jobs import HELP, client_of, fields
from tuque.client.commands.topics import Subscription
from tuque.completion import queue_names
from tuque.nodeoptions import NodeOptions, node_options
from tuque.terminal import echo_each, json_line, printable


@click.group(context_settings=HELP)
def topics() -> None:
    """Topics: a job that is added to a topic goes to each queue that is subscribed."""


@topics.command("list", context_settings=HELP)
@node_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.argument("topic", required=False)
def list_topics(node: NodeOptions, as_json: bool, topic: str | None) -> None:
    """List the queues that are subscribed to TOPIC, else to all topics, one a line."""
    with client_of(node, is_here=False) as client:
        rows = client.topics(topic)
        echo_each(rows, lambda one: json_line(fields(one)) if as_json else row(one), "no topics")


@topics.command("subscribe", context_settings=HELP)
@node_options
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="HEADER=PATTERN",
    help="Only jobs with such a header; may be given several times.",
)
@click.option("--key", metavar="PATTERN", help="Only jobs whose key fits; one pattern more.")
@click.argument("topic")
@click.argument("queue", shell_complete=queue_names)
def subscribe(
    node: NodeOptions, filters: tuple[str, ...], key: str | None, topic: str, queue: str
) -> None:
    """Have QUEUE get the jobs of TOPIC, or change the filters with which it does."""
    wanted: dict[str, str] = {}
    for text in filters:
        name, sign, pattern = text.partition("=")
        if not sign or not name or not pattern:
            raise click.BadParameter(f"{text!r} is not HEADER=PATTERN", param_hint="--filter")
        if name in wanted:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--filter")
        wanted[name] = pattern
    with client_of(node, is_here=False) as client:
        is_new = client.topic_subscribe(topic, queue, wanted, key=key)
    click.echo("subscribed" if is_new else "it was subscribed")


@topics.command("unsubscribe", context_settings=HELP)
@node_options
@click.option("--key", metavar="PATTERN", help="This pattern of keys only.")
@click.argument("topic")
@click.argument("queue", shell_complete=queue_names)
def unsubscribe(node: NodeOptions, key: str | None, topic: str, queue: str) -> None:
    """End a subscription; jobs in QUEUE stay there."""
    with client_of(node, is_here=False) as client:
        was_there = client.topic_unsubscribe(topic, queue, key=key)
    click.echo("unsubscribed" if was_there else "there was no such subscription")


@topics.command("add", context_settings=HELP)
@node_options
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header.")
@click.option("--key", help="Its key, words between dots.")
@click.argument("topic")
@click.argument("body")
def add(
    node: NodeOptions, headers: tuple[str, ...], key: str | None, topic: str, body: str
) -> None:
    """Add a job with BODY to each queue that is subscribed to TOPIC; print the ids."""
    pairs: dict[str, str] = {}
    for text in headers:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
        if name in pairs:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--header")
        pairs[name] = value
    with client_of(node, is_here=False) as client:
        ids = client.topic_add(topic, body, key=key, headers=pairs or None)
    for id in ids:
        click.echo(id)
    if not ids:
        click.echo(f"no queue gets this job of topic {printable(topic)}", err=True)


def row(one: Subscription) -> str:
    """A subscription on one line."""
    words = [f"{name}={pattern}" for name, pattern in one.filters.items()]
    words += [f"key {key}" for key in one.keys]
    return printable("  ".join([one.topic, one.queue, *words]))
