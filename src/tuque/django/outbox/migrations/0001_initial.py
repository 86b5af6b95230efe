"""The tables of the outbox."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """All of them."""

    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = []

    operations: ClassVar[list[object]] = [
        migrations.CreateModel(
            name="InboxRow",
            fields=[
                ("job", models.TextField(primary_key=True, serialize=False)),
                ("at", models.BigIntegerField()),
            ],
            options={
                "db_table": "tuque_inbox",
            },
        ),
        migrations.CreateModel(
            name="SlotRow",
            fields=[
                ("slot", models.IntegerField(primary_key=True, serialize=False)),
                ("batch", models.BigIntegerField()),
                ("attempt", models.TextField()),
                ("node", models.TextField()),
                ("owner", models.TextField()),
                ("mark", models.TextField()),
            ],
            options={
                "db_table": "tuque_outbox_slot",
            },
        ),
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("ticket", models.TextField(unique=True)),
                ("queue", models.TextField()),
                ("task", models.TextField()),
                ("body", models.BinaryField()),
                ("options", models.TextField()),
                ("group_key", models.TextField()),
                ("slot", models.IntegerField()),
                ("created", models.BigIntegerField()),
                ("not_before", models.BigIntegerField(default=0)),
                ("batch", models.BigIntegerField(null=True)),
                ("job", models.TextField(default="")),
                ("sent", models.BigIntegerField(null=True)),
                ("tries", models.IntegerField(default=0)),
                ("error", models.TextField(default="")),
            ],
            options={
                "db_table": "tuque_outbox",
                "indexes": [
                    models.Index(
                        condition=models.Q(("sent__isnull", True)),
                        fields=["slot", "id"],
                        name="tuque_outbox_unsent",
                    ),
                    models.Index(fields=["slot", "sent"], name="tuque_outbox_sent"),
                ],
            },
        ),
    ]
