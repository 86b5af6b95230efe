"""What types of tubes in other packages build on: docs/tube-drivers.md.

Must not know: nodes, sessions.
"""

from tuque.core.model.task import READY, Task
from tuque.tubes.types.driver import Driver

__all__ = ["READY", "Driver", "Task"]
