"""The client for asyncio, from which `tools/faces.py` makes the one for threads.

Must not know: the server.
"""

from tuque.client.aio.client import Client as Client
from tuque.client.aio.client import Pipeline as Pipeline
