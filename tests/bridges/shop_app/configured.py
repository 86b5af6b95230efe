"""Settings of its backends."""

from __future__ import annotations

from typing import Any


def tasks_of(queues: list[str] | None = None, **options: Any) -> dict[str, Any]:
    """One backend in TASKS."""
    return {
        "BACKEND": "tuque.django.TuqueBackend",
        "QUEUES": [] if queues is None else queues,
        "OPTIONS": {"url": "tuque://127.0.0.1:7711", **options},
    }
