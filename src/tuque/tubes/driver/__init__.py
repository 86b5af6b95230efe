"""The public path of what a type of tube of another package stands on: docs/tube-drivers.md.

Must not know: nodes, sessions.
"""

from tuque.core.model.task import READY, Task
from tuque.tubes.types.driver import Driver

__all__ = ["READY", "Driver", "Task"]
