"""Django: a backend for its tasks, the command `tuque_worker`, and a page of the admin.

`INSTALLED_APPS += ["tuque.django"]`, and `"BACKEND": "tuque.django.TuqueBackend"` in TASKS. Needs
Django 6.0, or 5.2 with django-tasks.

Must not know: the server, and how a worker runs.
"""

from __future__ import annotations

from tuque.errors import ConfigError

try:
    import django as _django  # noqa: F401  # before a module of this package needs it
except ImportError:
    raise ConfigError("tuque.django needs Django: pip install 'tuque[django]'") from None

from tuque.django.backend import TuqueBackend

__all__ = ["TuqueBackend"]
