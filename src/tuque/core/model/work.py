"""The work of one turn, counted in units; longer commands continue in the next turn (SPEC L2).

A unit is one job, queue, client or word that is read or changed; what costs more counts as
several. Only long paths are counted: a command about one job is free.
"""

from typing import Final

TURN_WORK: Final = 5_000  # units of all long commands together in one turn
PIECE: Final = 1_000  # units of one of them before the next one gets its share
REPLY_BYTES: Final = 4 << 20  # a reply with many elements ends after the one that exceeds it
