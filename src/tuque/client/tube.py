"""The classes of tubes, for annotations: of a `Client`, of an `aio.Client`, of a pipeline."""

from __future__ import annotations

from tuque.client.aio.tube import Tube as AsyncTube
from tuque.client.pipeline import QueuedTube
from tuque.client.sync.tube import Tube

__all__ = ["AsyncTube", "QueuedTube", "Tube"]
