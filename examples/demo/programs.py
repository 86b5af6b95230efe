"""The workers of the demo as child processes."""

from __future__ import annotations

from functools import partial

from tuque.cli.programs import Programs, wait_until


def start_worker(programs: Programs, name: str, url: str) -> int:
    """Starts one worker process of the demo's app; returns its pid."""
    return programs.start(
        name, "worker", "demo.tasks:app", "--url", url, "--concurrency", "2", "--prefetch", "16"
    )


def wait_for_worker(programs: Programs, name: str) -> None:
    """Returns when a worker fetches jobs; ClickException if that takes too long."""
    wait_until(programs, name, "get ready", partial(is_ready, programs, name))


def is_ready(programs: Programs, name: str) -> bool:
    """Whether the worker is fetching."""
    return "worker ready" in programs.log(name)  # failed jobs may have followed at once
