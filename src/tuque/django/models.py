"""What the admin needs of a model: a place in its list, and a permission. There is no table."""

from __future__ import annotations

from django.db import models


class Jobs(models.Model):
    """The jobs of the broker, which the page of the admin counts."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = (("view_jobs", "Can view the queues of Tuque"),)
        verbose_name = "queue"
        verbose_name_plural = "queues"
