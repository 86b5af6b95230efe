"""How the console's tests run the program."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import pytest
from click.testing import CliRunner

from tuque.main import main

DEADLINE_S = 60.0
HANDLED = (signal.SIGINT, signal.SIGTERM)
Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


def run_here(
    words: Sequence[str], stdin: bytes, env: Mapping[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run `tuque WORDS` in this process, with no terminal; its signals are ours again then."""
    handlers = {number: signal.getsignal(number) for number in HANDLED}
    code: object = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        CliRunner().isolation(stdin, env) as (out, errors, _),
    ):
        patch.setattr(sys, "argv", ["tuque", *words])
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
        said = out.getvalue(), errors.getvalue()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert code is None or isinstance(code, int)
    return subprocess.CompletedProcess(words, code or 0, *said)
