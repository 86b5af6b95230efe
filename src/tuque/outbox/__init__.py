"""The outbox: jobs that are added in a transaction of a database, and sent once it is committed.

Rows of a table wait for a relay, which makes a job of each, once. tuque.outbox.alchemy has the
tables for SQLAlchemy, tuque.django.outbox those for Django.

Must not know: the server, Django, and how a worker runs.
"""
