"""Every log call of server and worker has a stable event, and the fields of its text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import log_events  # noqa: E402  tools/ is put on the path above

EVERY_PROGRAM = ["server", "worker"]


@pytest.mark.parametrize("program", EVERY_PROGRAM)
def test_every_log_call_has_an_event_and_its_fields(program: str) -> None:
    """SPEC C10.1: Each line that the server or a worker logs has an event: a name that stays the
    same when its text changes. `docs/logs.md` lists events, levels, texts and fields.
    """
    lines = log_events.lines_of(ROOT / "src" / "tuque", program)
    assert len(lines) > 30
    page = (ROOT / "docs" / "logs.md").read_text("utf-8")
    assert all(f"| `{line.event}` |" in page for line in lines)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ('log.info("lost: %s", reason)', "no event"),
        ('log.info("lost")', "no event"),
        ('say_once(0, "lost", {})', "no event"),
        ('log.info("%(a)s", facts("lost", b=1))', "the fields are not those of the text"),
        ('log.info("lost", facts("lost", b=1))', "the fields are not those of the text"),
        ('log.info("lost", extra=facts("Lost it"))', "small letters"),
        ('log.info("%(level)s", facts("lost", level=1))', "a field of that name"),
        ('log.info(text, facts("lost"))', "the text is not written"),
    ],
)
def test_a_call_without_event_or_with_other_fields_is_found(
    tmp_path: Path, call: str, fault: str
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "one.py").write_text(f"def on_loss():\n    {call}\n")
    with pytest.raises(log_events.LogFault, match=fault):
        log_events.lines_of(tmp_path, "server")


def test_an_event_that_depends_gives_two_lines(tmp_path: Path) -> None:
    (tmp_path / "worker").mkdir()
    call = 'log.error("%(a).1f s", facts("one" if x else "two", a=1))'
    (tmp_path / "worker" / "one.py").write_text(call)
    lines = log_events.lines_of(tmp_path, "worker")
    assert [(line.event, line.level, line.fields) for line in lines] == [
        ("one", "error", ("a",)),
        ("two", "error", ("a",)),
    ]
    assert log_events.table(lines)[2] == "| `one` | error | `<a> s` |"
