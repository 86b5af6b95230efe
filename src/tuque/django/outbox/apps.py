"""What Django knows of `tuque.django.outbox` in INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """Its tables have names of their own, which the relay knows."""

    name = "tuque.django.outbox"
    label = "tuque_outbox"
    verbose_name = "Outbox of Tuque"
    default_auto_field = "django.db.models.BigAutoField"
