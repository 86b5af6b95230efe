"""A relay as a process of its own: outbox_relaying.py DATABASE BROKER."""

from __future__ import annotations

import sys

from sqlalchemy import create_engine

from tuque.outbox.alchemy import connector
from tuque.outbox.relay import Relay

Relay(connector(create_engine(sys.argv[1])), sys.argv[2]).run()
