"""The types that deliver in task order: fifo, fifottl, limfifottl (SPEC T3)."""

from typing import final

from tuque.tubes.types.driver import Driver


@final
class Fifo(Driver):
    """Ascending numbers; no times."""


@final
class FifoTtl(Driver):
    """Ascending (pri, number) with ttl, ttr and delay."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True
        self.ends_taken = True


@final
class LimFifoTtl(Driver):
    """fifottl with a capacity."""

    def __init__(self) -> None:
        super().__init__()
        self.is_timed = True
        self.ends_taken = True
        self.has_room_limit = True
