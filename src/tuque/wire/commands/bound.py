"""The bounds of one command (SPEC L2): words, work in one turn, bytes of the reply."""

from typing import Final, final

from mypy_extensions import i64

ALL_WORDS: Final = 1_048_576  # the protocol's own limit (C2.4)
FEW_WORDS: Final = 64  # options may be repeated, within limits
SMALL: Final = 16_384  # bytes of a reply without a list
WHOLE: Final = -1  # units: everything on the node, in one turn; for operators only

ONE: Final = "Does one thing"
CUT: Final = "Cut: the reply has as much as fits"
SLICED: Final = "Sliced: continues in the next turns"
CUT_SLICED: Final = "Sliced, and cut at the reply's bound: continue with the cursor"
REFUSED: Final = "Refused: the error names the bound"
STOPS: Final = "Blocks all clients: see SPEC L2.6"


@final
class Bound:
    """One row. `words` includes the command's name; 0: the arity decides."""

    def __init__(
        self, words: i64, work: i64, reply: i64, beyond: str, has_body: bool = False
    ) -> None:
        self.words = words
        self.work = work
        self.reply = reply
        self.beyond = beyond
        self.has_body = has_body
