"""How much one turn does: work is counted in units, and what is long goes on next turn (SPEC L2).

A unit is one job, queue, client or word that is looked at or changed; what costs as much as
several counts as several. Only long paths count: a command about one job counts nothing.
"""

from typing import Final

TURN_WORK: Final = 5_000  # units of all long commands together in one turn
PIECE: Final = 1_000  # units of one of them before the next one has its share
REPLY_BYTES: Final = 4 << 20  # a reply of many elements ends after the one that passes it
