"""The machine rooms of the simulator behave as real ones do, which is: badly."""

from __future__ import annotations

from random import Random

from sim.engine.clock import MachineClock, NodeClock
from sim.engine.disk import SECTOR, SimDisk
from sim.engine.network import End, Network
from sim.engine.world import World


class Place:
    """Somebody who connects, accepts and keeps what arrives."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ends: list[End] = []
        self.lost = 0
        self.process: object = self

    def on_data(self, end: End, data: bytes) -> None:
        self.pieces.append(data)

    def on_lost(self, end: End) -> None:
        self.lost += 1

    def accept(self, end: End, port: str) -> bool:
        end.owner = self
        self.ends.append(end)
        return True

    def got(self) -> bytes:
        return b"".join(self.pieces)


class Pair:
    """Two places and a connection between them."""

    def __init__(self, split_rate: float = 0.5) -> None:
        self.world = World("pair")
        self.net = Network(self.world, split_rate, 1000)
        self.here, self.there = Place(), Place()
        self.net.listeners["b"] = self.there
        self.told: list[End | None] = []
        self.net.connect(self.here, "a", "b", "bus", self.told.append)
        self.pass_ms(100)
        assert self.told[0] is not None
        self.end = self.told[0]

    def pass_ms(self, ms: int) -> None:
        self.world.run(self.world.now_us + ms * 1000)


def test_bytes_arrive_in_order_and_cut_up() -> None:
    pair = Pair()
    sent = [b"%d," % i for i in range(300)]
    for piece in sent:
        pair.end.send(piece)
    pair.pass_ms(1000)
    assert pair.there.got() == b"".join(sent)
    assert pair.there.pieces != sent
    assert len(pair.there.pieces) > 350


def test_a_line_cut_one_way_keeps_what_is_sent_until_it_heals() -> None:
    pair = Pair()
    pair.net.set_cut("a", "b", True)
    pair.end.send(b"there")
    pair.there.ends[0].send(b"back")
    pair.pass_ms(1000)
    assert pair.there.got() == b""
    assert pair.here.got() == b"back"
    pair.net.set_cut("a", "b", False)
    pair.pass_ms(1000)
    assert pair.there.got() == b"there"


def test_a_break_loses_a_suffix_and_both_ends_learn_in_their_own_time() -> None:
    lost_some = 0
    for seed in range(30):
        pair = Pair(0.0)
        pair.net.chance = Random(seed)
        for i in range(20):
            pair.end.send(b"piece %d," % i)
        pair.net.break_conn(pair.end, pair.there.ends[0])
        pair.end.send(b"sent after the break")
        pair.pass_ms(100)
        all_sent = b"".join(b"piece %d," % i for i in range(20))
        assert all_sent.startswith(pair.there.got())
        lost_some += pair.there.got() != all_sent
        pair.pass_ms(30_000)
        assert (pair.here.lost, pair.there.lost) == (1, 1)
        assert not pair.end.send(b"more")
    assert lost_some > 20


def test_a_crash_ends_the_stream_after_what_was_sent_and_a_power_cut_in_silence() -> None:
    for is_power_cut in (False, True):
        pair = Pair()
        pair.end.send(b"last words")
        pair.net.crash(pair.here, is_power_cut)
        pair.pass_ms(1000)
        assert pair.there.got() == (b"" if is_power_cut else b"last words")
        assert pair.there.lost == (0 if is_power_cut else 1)


def test_who_writes_to_a_dead_machine_learns_of_it() -> None:
    pair = Pair()
    pair.net.crash(pair.there, True)
    pair.pass_ms(1000)
    assert pair.here.lost == 0
    pair.end.send(b"hello?")
    pair.pass_ms(1000)
    assert pair.here.lost == 1


def test_a_power_cut_keeps_what_was_synced_and_some_prefix_of_the_rest() -> None:
    kept: set[int] = set()
    holes = 0
    for seed in range(40):
        disk = SimDisk(Random(seed))
        disk.makedirs("/d")
        handle = disk.open_append("/d/f")
        disk.write(handle, b"sure")
        disk.fdatasync(handle)
        disk.fsync_dir("/d")
        disk.write(handle, b"x" * 500)
        disk.open_append("/d/unsynced name")
        disk.lose_power(with_holes=seed % 2 == 1)
        data = disk.read("/d/f", 0, 1000)
        assert data.startswith(b"sure")
        assert set(data[4:]) <= set(b"x\0")
        if seed % 2 == 0:
            kept.add(len(data))
            assert b"\0" not in data
        holes += data.count(b"\0" * SECTOR) > 0
        assert not disk.exists("/d/unsynced name")
    assert len(kept) > 10
    assert holes > 5


def test_a_node_keeps_its_time_when_the_wall_clock_jumps() -> None:
    world = World("clock")
    machine = MachineClock(world, "m", rate_ppm=500)
    node = NodeClock(machine)
    start_ms = node.now_ms()
    world.run(10_000_000)
    machine.wall_offset_ms = -86_400_000
    assert node.now_ms() - start_ms == 10_005
    assert NodeClock(machine).now_ms() < start_ms
    at_us = node.true_us(start_ms + 20_000)
    world.run(at_us - 1000)
    assert node.now_ms() < start_ms + 20_000
    world.run(at_us)
    assert node.now_ms() >= start_ms + 20_000


def test_a_stream_of_chance_does_not_depend_on_the_others() -> None:
    one, two = World("s"), World("s")
    one.stream("net").random()
    assert one.stream("disk").random() == two.stream("disk").random()
    assert one.stream("disk").random() != World("t").stream("disk").random()
