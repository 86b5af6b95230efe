"""A shop with an outbox, by SQLAlchemy."""

from __future__ import annotations

from sqlalchemy import Column, Integer, MetaData, Table, Text

from tuque.outbox.alchemy import Outbox
from tuque.worker import App, Limit

metadata = MetaData()
users = Table("users", metadata, Column("id", Integer, primary_key=True), Column("name", Text))
outbox = Outbox(metadata)
app = App("tuque://127.0.0.1:7711", queue="mail")


@app.task
def welcome(number: int) -> int:
    return number


@app.task(queue="few", limit=Limit(1, by="number"))
def limited(number: int) -> None:
    """Its queue is a tube."""
