"""Where this node stands about one tube: plain data (SPEC T24)."""

from typing import final

from mypy_extensions import i64


@final
class Seat:
    """Where this node stands about one tube, and who stands with it (T24)."""

    def __init__(self) -> None:
        self.voted_epoch: i64 = 0  # of the last vote of this node; on its disk
        self.voted_node = b""
        self.resigned_epoch: i64 = 0  # the last one under which a node gave up, and which (T25.4)
        self.resigned_node = b""
        self.standing: i64 = 0  # slots of voters that stand with this node under its epoch
        self.floor: i64 = 0  # the highest epoch that anybody stands at
        self.asked_epoch: i64 = 0  # this node asks for votes under it; 0: it does not
        self.asked_ms: i64 = 0  # since when
        self.reason: i64 = 0  # why there is no leader, of model/ballots.py; 0: not asked yet
        self.surveyed_ms: i64 = 0  # since when this node asks who would vote; 0: it does not
        self.answered: i64 = 0  # slots that would vote
        self.has_better = False  # one of them has a newer copy
        self.waits: i64 = 0  # surveys that ended so
        self.silent_ms: i64 = 0  # since when no node leads it, as far as known; 0: one does
        self.alone_ms: i64 = 0  # since when votes choose no leader, with a majority here; 0: no
        self.given_epoch: i64 = 0  # a leader that gave up gave it the tube, all of it (T27.6)
        self.given_seq: i64 = -1
        self.wait_ms: i64 = 0  # the next survey is not before
        self.settled: i64 = 0  # the list under which the leader has settled the tube (T28.3)
        self.settled_epoch: i64 = 0  # which leader that was
        self.settled_node = b""
        self.settling: i64 = 0  # the leader: under which list it settles the tube now
        self.settling_seq: i64 = 0  # the change that a majority must have for that
