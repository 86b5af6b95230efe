"""The tables of the outbox, as tuque.outbox.rows uses them. Times are unix ms."""

from __future__ import annotations

from django.db import models

from tuque.outbox.rows import INBOX, SLOTS, TABLE


class OutboxRow(models.Model):
    """A job that is to be sent, or was sent less than a day ago."""

    ticket = models.TextField(unique=True)
    queue = models.TextField()
    task = models.TextField()
    body = models.BinaryField()
    options = models.TextField()
    group_key = models.TextField()
    slot = models.IntegerField()
    created = models.BigIntegerField()
    not_before = models.BigIntegerField(default=0)
    batch = models.BigIntegerField(null=True)
    job = models.TextField(default="")
    sent = models.BigIntegerField(null=True)
    tries = models.IntegerField(default=0)
    error = models.TextField(default="")

    class Meta:
        db_table = TABLE
        indexes = (
            models.Index(
                fields=["slot", "id"],
                name="tuque_outbox_unsent",
                condition=models.Q(sent__isnull=True),
            ),
            models.Index(fields=["slot", "sent"], name="tuque_outbox_sent"),
        )


class SlotRow(models.Model):
    """A share of the rows, which one relay sends."""

    slot = models.IntegerField(primary_key=True)
    batch = models.BigIntegerField()
    attempt = models.TextField()
    node = models.TextField()
    owner = models.TextField()
    mark = models.TextField()

    class Meta:
        db_table = SLOTS


class InboxRow(models.Model):
    """A job whose effects are committed."""

    job = models.TextField(primary_key=True)
    at = models.BigIntegerField()

    class Meta:
        db_table = INBOX
