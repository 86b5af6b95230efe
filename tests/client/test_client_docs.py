"""The examples in docs/client.md run as they stand, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lab import RealServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_examples(real_node: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUQUE_URL", real_node.url)
    names: dict[str, Any] = {}
    for at, text in enumerate(EXAMPLES):
        example = text.replace("tuque://127.0.0.1:7711", real_node.url)
        exec(compile(example, f"{PAGE.name}, example {at + 1}", "exec"), names)
    assert len(names["ids"]) == 1000
