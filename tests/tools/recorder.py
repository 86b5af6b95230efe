"""Records what producers and consumers saw, as JSON lines for verify_command.py (SPEC H5).

One file per process, many threads. Needs only Python: a client records beside its work, in any
order, except that `adding` and `acking` must precede their call.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from time import time_ns
from types import TracebackType
from typing import Final

COLUMNS: Final = """
    at_us BIGINT, client STRING, action STRING, queue STRING, job_id STRING, mark STRING,
    asked_us BIGINT, retry_s BIGINT
"""


def now_us() -> int:
    """Microseconds since 1970, as in the log."""
    return time_ns() // 1000


class Recorder:
    """A log of one client; lines are on disk after `close` or `flush`.

    `mark` is the client's own name of a job, unique over all clients: it identifies the job of an
    ADDJOB whose reply was lost.
    """

    def __init__(self, path: Path | str, client: str) -> None:
        """Append to that file. Raises OSError."""
        self.client = client
        self._lock = threading.Lock()
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def adding(self, mark: str, queue: str = "") -> None:
        """ADDJOB is about to be sent."""
        self._write("adding", queue=queue, mark=mark)

    def added(
        self, job_id: str, mark: str = "", queue: str = "", retry_s: int | None = None
    ) -> None:
        """ADDJOB replied; `retry_s` 0: the job may be delivered once at most."""
        self._write("added", queue=queue, job_id=job_id, mark=mark, retry_s=retry_s)

    def got(
        self, job_id: str, mark: str = "", queue: str = "", asked_us: int | None = None
    ) -> None:
        """The job was delivered; `asked_us` is when this client asked for it (`now_us`)."""
        self._write("got", queue=queue, job_id=job_id, mark=mark, asked_us=asked_us)

    def acking(self, job_id: str) -> None:
        """An ack is about to be sent: the job may be done from now on."""
        self._write("acking", job_id=job_id)

    def acked(self, job_id: str) -> None:
        """The ack was confirmed: the job is done."""
        self._write("acked", job_id=job_id)

    def nacked(self, job_id: str) -> None:
        """The job was nacked."""
        self._write("nacked", job_id=job_id)

    def left(self, job_id: str) -> None:
        """The job is known to wait in the broker at the end."""
        self._write("left", job_id=job_id)

    def quiet(self, at_us: int | None = None) -> None:
        """The trouble ended at that instant: acked jobs must not come again after it."""
        self._write("quiet", at_us=at_us)

    def flush(self) -> None:
        """Flush all lines to the system."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        """Write the rest and close; the log can be read."""
        with self._lock:
            self._file.close()

    def _write(self, action: str, *, at_us: int | None = None, **cells: str | int | None) -> None:
        row = {"at_us": at_us or now_us(), "client": self.client, "action": action}
        line = json.dumps(
            row | {name: value for name, value in cells.items() if value not in ("", None)}
        )
        with self._lock:
            if not self._file.closed:  # a thread outlived the run
                self._file.write(line + "\n")
