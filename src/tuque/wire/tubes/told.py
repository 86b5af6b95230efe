"""Whether the fields of messages about tubes are in range (SPEC B2.1, T17 to T21)."""

from typing import Final

from tuque.cluster.kept import is_node_id
from tuque.core.msgs import (
    HomeMessage,
    TubeAt,
    TubeClaim,
    TubeClaimed,
    TubeGot,
    TubesTold,
    TubeYours,
)
from tuque.wire.tubes.votes import TUBE_MAX, in_range, is_instant, is_port, is_tube

WORD_MAX: Final = 255  # of a tube's other words
UUID_BYTES: Final = 16


def is_sane_at(m: TubeAt) -> bool:
    """Whether a tube's fields are in range."""
    if not is_tube(m.name, m.maker, m.made_ns) or not is_node_id(m.home) or len(m.words) != 4:
        return False
    for word in m.words:
        if len(word) > WORD_MAX:
            return False
    return in_range(
        m.epoch, m.seq, m.begin_seq, m.ttl_ms, m.ttr_ms, m.pri, m.capacity, m.next_number, m.flags
    ) and (0 < m.sync < 1 << 16)


def is_sane_tube(m: HomeMessage) -> bool:
    """Whether the fields of a message about tubes are in range. Its records are checked later."""
    if isinstance(m, TubesTold):
        for at in m.tubes:
            if not is_sane_at(at):
                return False
        return in_range(m.flags) and is_port(m.port)
    if isinstance(m, TubeClaim):
        if len(m.maker) > 0 and not is_node_id(m.maker):
            return False
        if not is_instant(m.made_ns):
            return False
        return 0 < len(m.name) <= TUBE_MAX and in_range(m.number, m.epoch)
    if isinstance(m, TubeClaimed):
        return 0 < len(m.name) <= TUBE_MAX and in_range(m.number, m.answer, m.copy_epoch, m.seq)
    if not is_tube(m.name, m.maker, m.made_ns) or not in_range(m.epoch):
        return False
    if isinstance(m, TubeGot):
        return in_range(m.known, m.seq, m.flags)
    if isinstance(m, TubeYours):
        return in_range(m.seq, m.next_number, m.token)
    for number, uuid, user in m.sessions:
        if number <= 0 or not in_range(number) or len(uuid) != UUID_BYTES:
            return False
        if len(user) > WORD_MAX:
            return False
    for gone in m.gone:
        if not in_range(gone):
            return False
    return in_range(m.from_seq, m.to_seq, m.now_ms, m.next_number, m.flags) and (
        m.from_seq <= m.to_seq
    )
