"""Lives under `always`: wherever the log is cut or the power goes, the state before or after."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from journal_lab import PATH, START_MS, cut, recorded, segment
from life_lab import LifeLab

from tuque.core.model.work import FAILED, LIVE
from tuque.store.disk import WHOLE_PREFIX, MemoryDisk
from tuque.store.repair import check_dir, repair_dir

State = dict[bytes, tuple[object, ...]]


def restarted(disk: MemoryDisk, now_ms: int, seed: int = 1) -> LifeLab:
    """A new process on what the disk holds."""
    lab = LifeLab(disk, now_ms=now_ms, seed=seed)
    lab.start()
    return lab


@pytest.mark.parametrize("seed", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 3))])
def test_every_cut_of_the_last_commands_loads_the_state_before_or_after(seed: int) -> None:
    """W13.1 They are absolute and binding."""
    lab = LifeLab()
    lab.start()
    rng = random.Random(seed)
    for _ in range(50):
        lab.act(rng)
    name = segment(lab.disk)
    states: list[tuple[int, State]] = [(lab.disk.size(name), lab.state())]
    now_ms = lab.n.now_ms
    while len(states) < 12:
        lab.act(rng, 1)  # no time passes: a load at that instant is like each of the states
        states.append((lab.disk.size(name), lab.state()))
    whole = bytes(lab.disk.file(name).data)
    for size in range(states[0][0], len(whole) + 1):
        disk = MemoryDisk()
        disk.makedirs(PATH)
        for path, file in lab.disk.names.items():
            disk.write(disk.open_append(path), whole[:size] if path == name else bytes(file.data))
        expected = [state for end, state in states if end <= size][-1]
        assert restarted(disk, now_ms).state() == expected, size


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))]
)
def test_a_restart_after_each_command(seed: int) -> None:
    """A long history, with a crash, a stop or a rewrite in every phase of its jobs."""
    rng = random.Random(100 + seed)
    lab = LifeLab()
    lab.start()
    for step in range(300):
        lab.act(rng)
        if step % 3:
            continue
        expected = lab.state()
        if rng.randrange(3) == 0:
            lab.rewrite(rng.choice((1, 1000)))
        if rng.randrange(2):
            lab.committer.close(lab.n.now_ms)
        lab.disk.process_crash()
        lab = restarted(lab.disk, lab.n.now_ms, step + 1)
        assert lab.state() == expected, step


def test_check_and_repair_know_lives() -> None:
    """Of a journal with lives, too (J7.1): what is set aside costs only what it held."""
    lab = LifeLab()
    lab.start()
    rng = random.Random(8)
    for _ in range(40):
        lab.act(rng)
    lab.rewrite()
    snapshot_state = lab.state()
    start = lab.disk.size(segment(lab.disk))
    for _ in range(20):
        lab.act(rng, 1)
    lab.committer.close(lab.n.now_ms)
    assert snapshot_state and check_dir(lab.disk, PATH).is_ok()
    lab.disk.file(segment(lab.disk)).data[start + 60] ^= 1
    report = check_dir(lab.disk, PATH)
    assert not report.is_ok()
    repair_dir(lab.disk, report)
    assert check_dir(lab.disk, PATH).is_ok()
    again = restarted(lab.disk, lab.n.now_ms)
    assert set(again.n.life.by_id) <= set(again.n.jobs) and again.state()


class Filmed(MemoryDisk):
    """A disk that calls `film` before each operation, where the power may go."""

    def __init__(self, film: Callable[[], None]) -> None:
        super().__init__()
        self.film = film

    def step(self) -> None:
        super().step()
        self.film()


@pytest.mark.parametrize("count", [100, pytest.param(250, marks=pytest.mark.slow)])
def test_power_cut_at_every_operation(count: int) -> None:
    """What was durable before the command is there; the command itself wholly or not at all."""
    wrong: list[tuple[int, int]] = []

    def film() -> None:
        at = disk.ops
        moments = [before, (lab.n.now_ms, lab.state())]
        for keep in (0, 1, 30, WHOLE_PREFIX) if at % 5 == 0 else (at % 60,):
            found = [restarted(cut(disk, keep), now_ms).state() for now_ms, _ in moments]
            if found[0] != moments[0][1] and found[1] != moments[1][1]:
                wrong.append((at, keep))

    disk = Filmed(film)
    lab = LifeLab(disk)
    lab.committer.thread.segment_bytes = lab.committer.thread._roll_at = 8000
    rng = random.Random(4)
    before: tuple[int, State] = (lab.n.now_ms, {})
    lab.start()
    for i in range(count):
        before = (lab.n.now_ms, lab.state())
        lab.act(rng)
        if i % 40 == 20:
            lab.committer.start_rewrite(lab.n, lab.n.now_ms)
    lab.turn()
    assert disk.ops > 0.8 * count
    assert wrong == []


def test_the_journal_of_an_older_version_loads() -> None:
    """J1.4 Version 1 has no lives (W13.1) and no votes (T22.4); version 2, of Tuque 0.3.0, no
    `crashes` (W6.7) and no ONEXPIRY drop (W6.2).
    """
    disk = recorded("journal-0.3.0.txt")
    assert disk.read(segment(disk), 8, 4) == b"\x02\0\0\0"
    lab = restarted(disk, START_MS)
    lives = {lab.n.jobs[id].queue: life for id, life in lab.n.life.by_id.items()}
    found = {queue: (life.run_state, life.failed, life.starts) for queue, life in lives.items()}
    none = (0, 0, 0)
    assert found == {
        b"failed": (FAILED, 1, 1),
        b"running": (LIVE, 0, 1),
        b"graves": (FAILED, 1, 1),
        b"waiting": none,
    }
    assert not any(life.crashes or life.terms.drops for life in lives.values())
    (outcome,) = lab.n.life.kept.values()
    assert outcome.result == b"its result"
    state = lab.state()
    lab.rewrite()
    disk.process_crash()
    assert disk.read(segment(disk), 8, 4) == b"\x05\0\0\0"
    assert restarted(disk, START_MS).state() == state
