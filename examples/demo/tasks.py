"""The app whose workers the demo runs: one task that measures one Python file.

Results go to a queue of results, as jobs. A file that is not Python is rejected: another try would
not help. An unreadable file is retried, as it may come back.
"""

from __future__ import annotations

import ast
import time
import tokenize
import warnings
from typing import Final

import msgspec

from tuque.worker import App, Backoff, Reject, current_job

FILES: Final = "files"
RESULTS: Final = "results"
DEAD: Final = "files.dead"
RETRY_S: Final = 3  # when the jobs of a dead worker or node come back

app = App()


class Measures(msgspec.Struct):
    """The measures of one file; `job_id` is the job that found them."""

    job_id: str
    path: str
    lines: int = 0
    functions: int = 0
    classes: int = 0
    imports: int = 0
    calls: int = 0
    tries: int = 1
    parse_ms: float = 0.0


@app.task(
    queue=FILES,
    retry_s=RETRY_S,
    ttl_s=3600,
    max_deliveries=4,
    backoff=Backoff(first_s=0.5, max_s=2.0),
    dead_letter=DEAD,
)
def measure(path: str) -> None:
    """Parses a file and adds its measures to the results."""
    began = time.perf_counter()
    try:
        with tokenize.open(path) as file:
            source = file.read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the file itself
            tree = ast.parse(source, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        raise Reject(f"{type(err).__name__}: {err}") from None
    job = current_job()
    found = Measures(job.job_id, path, lines=source.count("\n"), tries=job.number)
    count(tree, found)
    found.parse_ms = (time.perf_counter() - began) * 1000
    app.client.addjob(RESULTS, msgspec.json.encode(found), ttl=3600, retry=RETRY_S)


def count(tree: ast.AST, found: Measures) -> None:
    """Counts the nodes of a syntax tree by kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.calls += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions += 1
        elif isinstance(node, ast.ClassDef):
            found.classes += 1
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports += len(node.names)
