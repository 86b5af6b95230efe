"""A command whose work takes more than one turn (SPEC L2)."""

from mypy_extensions import i64, mypyc_attr

from tuque.server.sockets.connection import Connection


@mypyc_attr(allow_interpreted_subclasses=True)
class Chore:
    """What is left to be done of one command. A connection has one at the most."""

    def __init__(self, c: Connection) -> None:
        self.c = c
        self.name = ""  # of the command
        self.bytes_used: i64 = 0  # of what was made so far
        self.is_muted = False  # nobody reads the reply (CLIENT REPLY)
        self.goes_on = False  # to its end, also when the client has gone
        self.is_over = False
        self.sync = 0  # of a call of IPROTO

    def step(self, room: i64) -> bool:
        """Go on for about `room` units, and count them in n.work; True: all is done.

        Called again after True it must not be. What it answers is for `tell`.
        """
        return True

    def drop(self) -> None:
        """It ends here: its client has gone, or it was refused or failed on the way."""

    def tell(self) -> None:
        """Answer: all is done."""
