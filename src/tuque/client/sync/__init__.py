# Made from src/tuque/client/aio/__init__.py by tools/faces.py: change that, and run make docs.
"""The client for threads, made by `tools/faces.py`.

Must not know: the server.
"""

from tuque.client.sync.client import Client as Client
from tuque.client.sync.client import Pipeline as Pipeline
