"""Whether the fields of messages about tubes and votes are in range (SPEC B2.1, T17 to T28)."""

from typing import Final

from tuque.cluster.kept import is_node_id
from tuque.core.msgs import (
    Belongings,
    HomeMessage,
    StandAt,
    TubeAt,
    TubeClaim,
    TubeClaimed,
    TubeGot,
    TubePulse,
    TubeStands,
    TubesTold,
    TubeVote,
    TubeYours,
    VotedAt,
    VoteMessage,
    VotersNext,
    VotersTold,
)

NUMBER_LAST: Final = (1 << 62) - 1
INSTANT_MAX_NS: Final = (1 << 63) - 1  # in 2262: a clock may be far ahead, and so its stamps
TUBE_MAX: Final = 512  # bytes of a tube's name
ORIGIN_BYTES: Final = 16  # of a list of voters
VOTERS_MAX: Final = 62
ANSWER_MAX: Final = 16  # of tubes/model/voter_state.py

WORD_MAX: Final = 255  # of a tube's other words
UUID_BYTES: Final = 16


# ---- Messages about votes (SPEC T23 to T28)


def in_range(*numbers: int) -> bool:
    """Whether all are possible instants, spans or counts."""
    for number in numbers:  # noqa: SIM110  mypyc compiles a loop well, and a generator not
        if number < 0 or number > NUMBER_LAST:
            return False
    return True


def is_instant(ns: int) -> bool:
    """Whether it can be an instant in ns since 1970."""
    return 0 <= ns <= NUMBER_LAST or NUMBER_LAST < ns < INSTANT_MAX_NS


def is_port(number: int) -> bool:
    """Whether it can be a port, or 0 for none."""
    return 0 <= number < 65_536


def is_tube(name: bytes, maker: bytes, made_ns: int) -> bool:
    """Whether it can name a tube."""
    return 0 < len(name) <= TUBE_MAX and is_node_id(maker) and is_instant(made_ns)


def is_sane_vote(m: VoteMessage) -> bool:
    """Whether the fields of a message about voters and votes are in range."""
    if isinstance(m, TubeStands):
        for stand in m.stands:  # noqa: SIM110  mypyc compiles a loop well, and a generator not
            if not is_stand(stand):
                return False
        return True
    if len(m.origin) != ORIGIN_BYTES:
        return False
    if isinstance(m, TubePulse):
        if not in_range(m.right, m.mark, m.known_right, m.known_mark):
            return False
        return in_range(m.list_number, m.round, m.echo, m.timeout_ms) and m.timeout_ms > 0
    if isinstance(m, VotersTold):
        for node_id, right in m.voters:
            if not is_node_id(node_id) or right < 1 or not in_range(right):
                return False
        return m.number > 0 and in_range(m.number, m.step) and 0 < len(m.voters) <= VOTERS_MAX
    if isinstance(m, VotersNext):
        return is_next_list(m)
    if isinstance(m, TubeVote):
        for at in m.tubes:
            if not is_tube(at.name, at.maker, at.made_ns):
                return False
            if not in_range(at.epoch, at.copy_epoch, at.seq):
                return False
        return in_range(m.list_number)
    for told in m.tubes:
        if not is_answer_at(told):
            return False
    return in_range(m.list_number)


def is_next_list(m: VotersNext) -> bool:
    """Whether the fields of a step towards the next list are in range."""
    for node_id, right in m.voters:
        if not is_node_id(node_id) or right < 1 or not in_range(right):
            return False
    if not is_node_id(m.node) or not is_node_id(m.written_node):
        return False
    if m.number < 1 or len(m.voters) > VOTERS_MAX or len(m.tube) > TUBE_MAX:
        return False
    return in_range(m.number, m.step, m.attempt, m.written_attempt)


def is_stand(m: StandAt) -> bool:
    """Whether the fields of a stand are in range."""
    if not is_tube(m.name, m.maker, m.made_ns) or not is_node_id(m.node):
        return False
    return in_range(m.epoch, m.settled)


def is_answer_at(m: VotedAt) -> bool:
    """Whether the fields of an answer about one tube are in range."""
    if not is_tube(m.name, m.maker, m.made_ns) or not 0 <= m.answer < ANSWER_MAX:
        return False
    return in_range(m.epoch, m.stand_epoch, m.copy_epoch, m.seq)


# ---- Messages about tubes (SPEC T17 to T21)


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


def may_meet(m: Belongings) -> bool:
    """Whether the fields of two nodes that meet are in range (K3.4)."""
    for at in m.tubes:
        if not is_sane_at(at):
            return False
    return len(m.origin) in (0, ORIGIN_BYTES)


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
