"""The client for asyncio programs: `tuque.aio.Client`, the twin of `tuque.Client`."""

from __future__ import annotations

from tuque.client.aio import Client, Pipeline

__all__ = ["Client", "Pipeline"]
