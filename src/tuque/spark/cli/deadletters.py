"""`tuque triage` and `tuque replay`: dead letters from the command line."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tuque.client.sync import Client
from tuque.errors import Error
from tuque.logtext import visible
from tuque.nodeoptions import NodeOptions, node_options
from tuque.spark.cli.running import told
from tuque.spark.history import deadletters
from tuque.spark.history.duck import DuckEngine

Command = Callable[..., None]
WIDTH = 60  # of a reason in the table
KEPT = "--keep is for letters in queues; a letter of the tube %s is the job itself: use --queue"


def _options(command: Command) -> Command:
    """The options of both commands."""
    for option in reversed(
        [
            node_options,
            click.option(
                "--queue",
                "queues",
                multiple=True,
                help="Name or pattern of a queue of dead letters, or of a tube of type tasks; by "
                "default *.dead, and all such tubes.",
            ),
            click.option(
                "--events",
                type=click.Path(path_type=Path),
                help="Directory of the servers' events: they tell the reasons of what clients made "
                "dead letters.",
            ),
            click.option(
                "--where",
                default="",
                help="Only letters for which this SQL is true; columns: letter, queue, task, args, "
                "size, died_at, reason, job_id, from_queue.",
            ),
        ]
    ):
        command = option(command)
    return command


@contextmanager
def _letters(
    node: NodeOptions, queues: tuple[str, ...], events: Path | None
) -> Iterator[tuple[Client, DuckEngine]]:
    """A client and the table of letters; errors become one line."""
    place = events or Path.cwd()
    with told(place), tempfile.TemporaryDirectory(prefix="tuque-letters-") as scratch:
        try:
            with Client(node.client_url()) as client, DuckEngine() as engine:
                names = deadletters.dead_queues(client, queues)
                segments = deadletters.segments(events, Path(scratch))
                tubes = deadletters.dead_tubes(client, queues)
                deadletters.look(engine, client, names, tubes, segments)
                yield client, engine
        except Error as e:
            raise click.ClickException(str(e)) from e


@click.command()
@_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def triage(
    node: NodeOptions, queues: tuple[str, ...], events: Path | None, where: str, as_json: bool
) -> None:
    """Show the dead letters of a node by queue, task and reason, most first."""
    with _letters(node, queues, events) as (_, engine):
        found = deadletters.groups(engine, where)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found:
        click.echo("no dead letters")
        return
    names = [(visible(row["queue"]), visible(row["task"])) for row in found]
    width = max(len("queue"), *(len(queue) for queue, _ in names))
    tasks = max(len("task"), *(len(task) for _, task in names))
    click.echo(f"{'letters':>8}  {'queue':<{width}}  {'task':<{tasks}}  {'last':<19}  reason")
    for row, (queue, task) in zip(found, names, strict=True):
        click.echo(
            f"{row['letters']:>8}  {queue:<{width}}  {task:<{tasks}}  "
            f"{row['last_at'][:19]}  {_short(row['reason'])}"
        )


@click.command()
@_options
@click.option("--to", default="", help="Queue to put them into; by default where they came from.")
@click.option("--round", "round_", default=1, show_default=True, help="Replay kept letters anew.")
@click.option("--keep", is_flag=True, help="Leave the letters in queues where they are.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
def replay(
    node: NodeOptions,
    queues: tuple[str, ...],
    events: Path | None,
    where: str,
    to: str,
    round_: int,
    keep: bool,
    dry_run: bool,
) -> None:
    """Put the bodies of dead letters into queues again, and dead tasks of tubes back to work.

    Run twice it adds no letter twice: each has a key made of its id and the round. Exit status 1
    when the broker refused some; those stay.
    """
    with _letters(node, queues, events) as (client, engine):
        chosen = deadletters.chosen(engine, where)
        tube = next((one["queue"] for one in chosen if one["is_task"]), "") if keep else ""
        if tube:
            raise click.ClickException(visible(KEPT % tube))
        ways = Counter((one["queue"], deadletters.target_of(one, to)) for one in chosen)
        for (queue, target), count in sorted(ways.items()):
            way = f"to {target}" if target else f"stay: {deadletters.UNKNOWN}"
            click.echo(visible(f"{count} from {queue} {way}"))
        if dry_run:
            click.echo(f"{len(chosen)} letters would be replayed")
            return
        done = deadletters.replay(client, chosen, to, round_, keep)
    click.echo(f"{done.added} of {done.found} letters replayed")
    for line in done.refused[:10]:
        click.echo(visible(f"refused: {line}"), err=True)
    if done.refused:
        raise click.ClickException(f"{len(done.refused)} letters were refused and stay")


def _short(text: str) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
