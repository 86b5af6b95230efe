"""What Django knows of `tuque.django` in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class TuqueConfig(AppConfig):
    """Its label is in the name of the permission `tuque.view_jobs`."""

    name = "tuque.django"
    label = "tuque"
    verbose_name = "Tuque"
