"""A command whose work takes several turns (SPEC L2)."""

from mypy_extensions import i64, mypyc_attr

from tuque.server.sockets.connection import Connection


@mypyc_attr(allow_interpreted_subclasses=True)
class Chore:
    """The rest of one command. A RESP connection has one at most."""

    def __init__(self, c: Connection) -> None:
        self.c = c
        self.name = ""  # the command's
        self.bytes_used: i64 = 0  # of the reply so far
        self.is_muted = False  # nobody reads the reply (CLIENT REPLY)
        self.goes_on = False  # runs to its end even if the client has gone
        self.is_over = False
        self.sync = 0  # of an IPROTO call
        self.wake_ms: i64 = 0  # it rests until then
        self.is_paced = False  # ends when the client stops sending, as a waiting command does

    def step(self, room: i64) -> bool:
        """Work for about `room` units, counted in n.work; True: done.

        Must not be called again after True. `tell` replies.
        """
        return True

    def drop(self) -> None:
        """Stop early: the client has gone, or the command was refused or failed."""

    def tell(self) -> None:
        """Send the reply after the last step."""
