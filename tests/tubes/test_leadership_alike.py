"""The model of who leads a tube and the code agree on votes and leases (SPEC T25, T26)."""

from __future__ import annotations

import random

import pytest
from tubes_world import VotesWorld

from spec.model import leadership, leases, state
from tuque.core.msgs.bus import TubeVote, VoteAt
from tuque.tubes.election.candidate import answer_to
from tuque.tubes.election.lease import lease_of
from tuque.tubes.model import voter_state as codes

WORDS = {
    codes.YES: "yes",
    codes.OTHER_LIST: "other list",
    codes.NO_VOTER: "no voter",
    codes.UNKNOWN: "unknown",
    codes.OLD_EPOCH: "old epoch",
    codes.PROMISED: "promised",
    codes.BETTER: "better",
}


@pytest.fixture(scope="module")
def world() -> VotesWorld:
    return VotesWorld(3)


def twin(world: VotesWorld, i: int, voters: state.VoterList) -> state.Node:
    """A node of the model with the clock and the right of node i."""
    n, b = world.nodes[i].core, world.t(i).voter_state
    x = state.Node(i, state.Disk(voters, i), int(n.limits.node_timeout_ms), 1)
    x.clock = x.seen = int(n.now_ms)
    x.bound, x.asking, x.disk.right = int(b.bound_ms), b.is_asking, int(b.right)
    return x


def all_three(world: VotesWorld) -> state.VoterList:
    """The list of the world, in the model."""
    voters = world.t(0).voter_state.voters
    assert voters is not None
    rights = {i: int(voters.rights[world.id(i)]) for i in range(3)}
    return state.VoterList(1, int(voters.number), rights, {i: i for i in range(3)}, 0)


def test_a_voter_answers_as_in_the_model(world: VotesWorld) -> None:
    chance = random.Random(5)
    n, t, tube, seat = world.nodes[1].core, world.t(1), world.tube(1), world.seat(1)
    b, voters, w = t.voter_state, all_three(world), leases.Cluster()
    right, key = b.right, (0, 1)
    heard = set()
    for _ in range(1_500):
        b.right = chance.choice((right, right, right, 0))
        b.is_asking = chance.random() < 0.1
        b.bound_ms = n.now_ms + chance.choice((-1, -1, 0, 1))
        seat.voted_epoch, voted_for = chance.randrange(5), chance.randrange(3)
        tube.epoch, leader = chance.randrange(1, 5), chance.choice((0, 2))
        seat.voted_node, tube.home = world.id(voted_for), world.id(leader)
        seat.resigned_epoch, resigned_by = chance.randrange(5), chance.randrange(3)
        seat.resigned_node = world.id(resigned_by)
        until = {i: n.now_ms + chance.choice((-1, 0, 1)) for i in (0, 2) if chance.random() < 0.7}
        b.promised = {n.slot_of[world.id(i)]: at for i, at in until.items()}
        tube.is_complete = chance.random() < 0.7
        tube.copy_epoch, tube.seq, tube.exact_seq = 2, chance.randrange(3), -1
        tube.whole_epoch, tube.whole_seq = 1, chance.randrange(3)
        candidate, epoch = chance.choice((0, 2)), chance.randrange(1, 6)
        newest = (chance.randrange(1, 3), chance.randrange(3))
        is_survey, is_other = chance.random() < 0.3, chance.random() < 0.1

        x = twin(world, 1, voters)
        copy = x.disk.tubes[key] = state.Copy(key)
        copy.voted, copy.voted_for = int(seat.voted_epoch), voted_for
        copy.led, copy.leader = int(tube.epoch), leader
        copy.copy = 2 if tube.is_complete else 1
        copy.log = ((0, 0),) * int(tube.seq if tube.is_complete else tube.whole_seq)
        view = x.view(key)
        view.resigned, view.resigned_by = int(seat.resigned_epoch), resigned_by
        x.promised = {i: int(at) for i, at in until.items()}
        other = state.VoterList(1, voters.number + 1, voters.voters, voters.disks, 0)
        going_by = other if is_other else voters
        m = state.Vote(candidate, 1, going_by, key, 0, 0, is_survey, epoch, newest, 0)

        slot = n.slot_of[world.id(candidate)]
        at = VoteAt(tube.name, tube.maker, tube.made_ns, epoch, *newest, 0, 0)
        assert b.voters is not None
        said = TubeVote(going_by.number, b.voters.origin, is_survey, [at])
        answer = WORDS[int(answer_to(n, t, slot, said, at))]
        assert answer == leadership.answer_to(w, x, m)
        heard.add(answer)
    assert heard == set(WORDS.values()) - {"unknown"}


def test_a_lease_ends_as_in_the_model(world: VotesWorld) -> None:
    chance = random.Random(6)
    n, t = world.nodes[0].core, world.t(0)
    b, voters, w = t.voter_state, all_three(world), leases.Cluster()
    right, key = b.right, (0, 1)
    assert b.voters is not None
    for _ in range(1_000):
        b.right = chance.choice((right, right, 0))
        echoed = {i: chance.randrange(1, 9_000) for i in (1, 2) if chance.random() < 0.8}
        timeouts = {i: chance.choice((2_000, 8_000, 30_000)) for i in (1, 2)}
        votes = [i for i in (1, 2) if chance.random() < 0.7]
        slots = {i: n.slot_of[world.id(i)] for i in (1, 2)}
        b.echoed = {slots[i]: at for i, at in echoed.items()}
        b.timeouts = {slots[i]: at for i, at in timeouts.items()}

        x = twin(world, 0, voters)
        copy = x.disk.tubes[key] = state.Copy(key)
        copy.voted, copy.voted_for = 3, 0
        view = x.view(key)
        view.role, view.epoch = state.LEADS, 3
        view.standing = sum(1 << i for i in votes)
        x.echoed, x.timeouts = echoed, timeouts

        until = lease_of(n, t, b.voters, sum(1 << slots[i] for i in votes))
        assert max(0, leases.lease_of(w, x, copy, view)) == until
