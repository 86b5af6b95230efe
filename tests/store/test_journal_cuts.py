"""Nothing acknowledged under `always` is lost, wherever the log is cut and the power goes."""

from __future__ import annotations

import random

import pytest
from journal_lab import PATH, START_MS, Lab, cut, restarted, segment

from tuque.store.disk import WHOLE_PREFIX, MemoryDisk, PowerCut
from tuque.store.frames import HEADER_BYTES, JournalError
from tuque.store.repair import check_dir, repair_dir

State = dict[bytes, tuple[object, ...]]


def act(lab: Lab, rng: random.Random) -> None:
    """One command of a client, chosen by chance; the turn ends with it."""
    ids = list(lab.n.jobs)
    choice = rng.randrange(20)
    if choice > 14:
        lab.lease(rng)
    elif choice < 5:
        body = rng.randbytes(rng.randrange(40))
        retry = rng.choice((0, 1, 60))
        lab.add(rng.choice((b"q", b"r")), body, retry=retry, delay=rng.choice((0, 0, 5)))
    elif choice < 9:
        lab.get(rng.choice((b"q", b"r")))
    elif choice < 11 and ids:
        lab.ack(rng.choice(ids))
    elif choice == 11 and ids:
        lab.nack(rng.choice(ids), rng.choice((0, 2000)))
    elif choice == 12 and ids:
        rng.choice((lab.delete, lab.nack))(rng.choice(ids))
    elif choice == 13:
        lab.pause(rng.choice((b"q", b"other")), rng.choice((0, 2)))
    else:
        lab.pass_ms(rng.randrange(3000))


def test_every_cut_of_the_last_records_loads_what_was_whole() -> None:
    lab = Lab()
    lab.start()
    rng = random.Random(5)
    for _ in range(60):
        act(lab, rng)
    name = segment(lab.disk)
    states: list[tuple[int, State]] = []
    for _ in range(12):
        act(lab, rng)
        states.append((lab.disk.size(name), lab.state()))
    whole = bytes(lab.disk.file(name).data)
    other_files = {n: bytes(f.data) for n, f in lab.disk.names.items()}
    for size in range(states[0][0], len(whole) + 1):
        disk = MemoryDisk()
        disk.makedirs(PATH)
        for path, data in other_files.items():
            handle = disk.open_append(path)
            disk.write(handle, data[:size] if path == name else data)
        again = restarted(disk, lab.n.now_ms)
        expected = [state for end, state in states if end <= size][-1]
        assert again.state() == expected, size


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2])
def test_power_cut_at_every_operation_of_a_long_script(first: int) -> None:
    """What was durable before the command is there; the command itself wholly or not at all."""
    total = operations_of_the_script(0)[1]
    assert total > 500
    for at in range(first, total + 1, 2):  # the other half has a test of its own
        (before, after, disk, now_ms), _ = operations_of_the_script(at)
        for keep in (0, 1, 30, WHOLE_PREFIX) if at % 5 == 0 else (at % 60,):
            copy = cut(disk, keep)
            again = restarted(copy, now_ms)
            assert again.state() in (before, after), (at, keep)


def operations_of_the_script(cut_at: int) -> tuple[tuple[State, State, MemoryDisk, int], int]:
    """Run the script until the power goes: states before and after the command it hit."""
    disk = MemoryDisk()
    disk.cut_at = cut_at
    lab = Lab(disk)
    lab.committer.thread.segment_bytes = lab.committer.thread._roll_at = 4000
    rng = random.Random(1)
    before: State = {}
    try:
        lab.start()
        for i in range(300):
            before = lab.state()
            act(lab, rng)
            if i % 40 == 20:
                lab.committer.start_rewrite(lab.n, lab.n.now_ms)
        lab.turn()
    except PowerCut:
        pass
    return (before, lab.state(), disk, lab.n.now_ms), disk.ops


def with_switches(cut_at: int) -> tuple[State, State, MemoryDisk, int, int]:
    """Segments that are prepared begin, until the power goes: states before and after that turn."""
    disk = MemoryDisk()
    lab = Lab(disk)
    lab.start()
    rng = random.Random(4)
    journal = lab.committer.journal
    begun = disk.ops
    disk.cut_at = 0 if cut_at == 0 else begun + cut_at
    before = lab.state()
    try:
        for i in range(36):
            if i % 6 == 1:
                journal.prepare()
            before = lab.state()
            act(lab, rng)
            if i % 6 == 3:
                assert journal.is_prepared() or i > 20  # the end of a rewrite makes it stale
                assert journal.next_segment(lab.n.now_ms) and not journal.is_prepared()
            if i == 20:
                lab.committer.start_rewrite(lab.n, lab.n.now_ms)  # its first segment is prepared
            if i == 27:
                journal.prepare()
                journal.drop_unnamed()
        lab.turn()
    except PowerCut:
        pass
    return before, lab.state(), disk, lab.n.now_ms, disk.ops - begun


def test_power_cut_at_every_operation_of_prepared_switches() -> None:
    """J1.5: whatever of a switch is on disk, what was durable is there."""
    total = with_switches(0)[-1]
    assert total > 100
    for at in range(1, total + 1):
        before, after, disk, now_ms, _ = with_switches(at)
        for keep in (0, 1, 130, WHOLE_PREFIX):
            again = restarted(cut(disk, keep), now_ms)
            assert again.state() in (before, after), (at, keep)


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_kill_at_every_operation_of_prepared_switches(policy: str) -> None:
    """J4.2 a reply that reveals a change leaves when its record is in the file: what a killed
    process answered is kept.
    """
    for at in range(1, 60):
        disk = MemoryDisk()
        lab = Lab(disk, policy)
        lab.start()
        journal = lab.committer.journal
        disk.cut_at = disk.ops + at
        before = lab.state()
        try:
            for i in range(9):
                if i % 3 == 0:
                    journal.prepare()
                before = lab.state()
                lab.add()
                lab.turn()
                if i % 3 == 1:
                    journal.next_segment(lab.n.now_ms)
        except PowerCut:
            pass
        disk.process_crash()
        assert restarted(disk, lab.n.now_ms).state() in (before, lab.state()), at


class Counting(MemoryDisk):
    """It counts what waits for the disk."""

    waits = 0

    def fdatasync(self, handle: int) -> None:
        self.waits += 1
        super().fdatasync(handle)

    def fsync_dir(self, path: str) -> None:
        self.waits += 1
        super().fsync_dir(path)


def test_a_prepared_switch_waits_little_for_the_disk() -> None:
    """J1.5: for what was written last, and for the header."""
    disk = Counting()
    lab = Lab(disk, "no")
    lab.start()
    journal = lab.committer.journal
    waits = []
    for is_prepared in (False, True):
        lab.add()
        lab.turn()
        if is_prepared:
            journal.prepare()
        before = disk.waits
        assert journal.next_segment(lab.n.now_ms)
        waits.append(disk.waits - before)
    assert waits == [5, 2]


@pytest.mark.parametrize("fails", ["fsync", "rename", "write"])
@pytest.mark.parametrize("when", ["prepare", "switch"])
def test_trouble_with_a_prepared_segment_costs_nothing(fails: str, when: str) -> None:
    """J1.5: what cannot be prepared is done at the switch."""
    lab = Lab()
    lab.start()
    journal = lab.committer.journal
    for i in range(6):
        lab.add(body=b"%d" % i)
        lab.turn()
        journal.prepare() if when == "switch" else None
        setattr(lab.disk, f"{fails}_errors", 1)
        journal.prepare() if when == "prepare" else None
        names = len(journal.manifest.segments)
        assert journal.next_segment(lab.n.now_ms)
        assert len(journal.manifest.segments) == names + 1
        setattr(lab.disk, f"{fails}_errors", 0)
    assert restarted(cut(lab.disk, 0), lab.n.now_ms).state() == lab.state()


@pytest.mark.parametrize("fails", ["cut", "fsync", "rename", "write"])
def test_trouble_at_every_step_of_a_rewrite_loses_nothing(fails: str) -> None:
    def prepared() -> Lab:
        lab = Lab()
        lab.start()
        rng = random.Random(3)
        for _ in range(40):
            act(lab, rng)
        lab.rewrite()
        for _ in range(20):
            act(lab, rng)
        return lab

    lab = prepared()
    first = lab.disk.ops + 1
    lab.rewrite()
    steps = lab.disk.ops - first + 1
    assert steps > 15
    for step in range(steps):
        lab = prepared()
        disk = lab.disk
        expected = lab.state()
        try:
            if fails == "cut":
                disk.cut_at = disk.ops + 1 + step
            else:
                fail_later(disk, fails, step)
            lab.rewrite()
        except PowerCut:
            pass
        job_id = b""
        if fails != "cut":
            lab.disk.__dict__.pop("step", None)
            setattr(disk, f"{fails}_errors", 0)
            for _ in range(3):  # trouble is over: a second try repairs what is broken
                lab.committer._retry_at = 0
                lab.turn()
                lab.turn(1000)
            assert lab.committer.error == ""
            job_id = lab.add()
            expected = lab.state()
            assert lab.committer.durable_seq == lab.committer.seq
        again = restarted(cut(disk, 0), lab.n.now_ms)
        assert again.state() == expected, step
        assert job_id == b"" or job_id in again.n.jobs


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_under_everysec_leaves_a_state_that_once_was(seed: int) -> None:
    """Never a mixture: a snapshot newer than its segment would undo what it tells."""

    def run(cut_at: int) -> tuple[MemoryDisk, list[State], int]:
        lab = Lab(policy="everysec")
        lab.start()
        rng = random.Random(seed)
        history = [lab.state()]
        for _ in range(40):
            act(lab, rng)
            history.append(lab.state())
        lab.disk.cut_at = lab.disk.ops + cut_at
        try:
            lab.committer.start_rewrite(lab.n, lab.n.now_ms)
            while lab.committer.is_rewriting():
                act(lab, rng)
                history.append(lab.state())
        except PowerCut:
            history.append(lab.state())
        return lab.disk, history, lab.n.now_ms

    disk, _, _ = run(1 << 40)
    for cut_at in range(1, disk.ops + 1):
        disk, history, now_ms = run(cut_at)
        if disk.cut_at and disk.ops < disk.cut_at:
            break  # past the end of the rewrite
        for keep in (0, 40):
            again = restarted(cut(disk, keep), now_ms)
            assert again.state() in history, (cut_at, keep)


def fail_later(disk: MemoryDisk, what: str, step: int) -> None:
    """Make the next operation of that kind after `step` operations fail once."""
    at = disk.ops + step
    whole_step = disk.step

    def counting() -> None:
        if disk.ops == at:
            setattr(disk, f"{what}_errors", 1)
        whole_step()

    disk.step = counting  # type: ignore[method-assign]  # the disk stays whole, it only fails


@pytest.mark.parametrize("apart", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_seen(apart: int) -> None:
    """The short one flips every fifth: one or two of each byte."""
    lab = Lab()
    lab.start()
    rng = random.Random(9)
    for _ in range(8):
        act(lab, rng)
    lab.rewrite()
    for _ in range(8):
        act(lab, rng)
    now_ms = lab.n.now_ms
    lab.committer.close(now_ms)
    expected = lab.state()
    originals = {n: bytes(f.data) for n, f in lab.disk.names.items()}
    assert restarted(copy_of(originals), now_ms).state() == expected
    seen = 0
    for path, data in originals.items():
        for bit in range(0, len(data) * 8, apart):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            try:
                again = restarted(copy_of({**originals, path: bytes(changed)}), now_ms)
            except JournalError:
                seen += 1
                continue
            # Only the last write may be taken for unfinished: the mark of the orderly stop.
            assert path.endswith(".log"), (path, bit)
            assert again.state() == expected, (path, bit)
            seen += 1
    assert seen == sum(len(range(0, len(data) * 8, apart)) for data in originals.values())


def copy_of(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.makedirs(PATH)
    for path, data in files.items():
        handle = disk.open_append(path)
        disk.write(handle, data)
        disk.fdatasync(handle)
    disk.fsync_dir(PATH)
    disk.salts = 500
    return disk


def test_a_body_that_looks_like_a_frame_is_never_taken_for_one() -> None:
    """A client cannot know the salt of the file, so damage does not let its bytes in."""
    lab = Lab()
    lab.start()
    name = segment(lab.disk)
    start = lab.disk.size(name)
    lab.add(b"q", b"x" * 50)
    frame = bytes(lab.disk.file(name).data[start:])
    other = Lab(now_ms=START_MS, seed=3)
    other.disk.salts = 77
    other.start()
    other.add(b"q", frame)
    other.add(b"q", b"after")
    path = segment(other.disk)
    other.disk.file(path).data[HEADER_BYTES + 4] ^= 1  # the length: the search begins inside
    other.disk.process_crash()
    with pytest.raises(JournalError, match=r"damaged at offset 128.*tuque journal repair"):
        restarted(other.disk, START_MS)
    other.disk.process_crash()
    repair_dir(other.disk, check_dir(other.disk, PATH))
    again = restarted(other.disk, START_MS, seed=4)
    assert [job.body for job in again.n.jobs.values()] == [b"after"]
