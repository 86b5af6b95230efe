"""Celery: a transport of kombu and a result backend, for programs that change their URLs alone.

`broker_url = "tuque://..."` needs no import with Celery; with kombu alone `import tuque.celery`.

Must not know: the server, and workers of Tuque.
"""

from __future__ import annotations

from tuque.celery.entry import add_aliases

add_aliases()

__all__: list[str] = []
