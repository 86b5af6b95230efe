"""`maxmemory` as a part of what the machine or the cgroup has (SPEC M1.6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuque.core.node.node import Node
from tuque.server.config.config import config_get, config_set, load, print_lines
from tuque.server.config.kinds import ConfigError, Percent
from tuque.server.net.system import System, memory_bytes
from tuque.server.state.server import Server, apply_settings

MB = 1 << 20
GB = 1 << 30


def limits(memory: int, **options: str) -> tuple[int, int]:
    """The limits of a node on a machine with so much memory."""
    system = System()
    system.memory_bytes = lambda: memory
    s = Server(load(None, {}, options), Node(b"a" * 40, b"seed", 1), system)
    apply_settings(s)
    return int(s.n.limits.memory_bytes), int(s.n.limits.clients_bytes)


def test_parts() -> None:
    """M1.6 of a percentage at least 256 MB. The default is `60%`."""
    assert limits(10 * GB) == (6 * GB, 6 * GB // 5)
    assert limits(300 * MB)[0] == 256 * MB
    assert limits(10 * GB, maxmemory="25%", maxmemory_clients="4%") == (5 * GB // 2, GB // 10)
    assert limits(10 * GB, maxmemory="100mb", maxmemory_clients="10mb") == (100 * MB, 10 * MB)
    assert limits(10 * GB, maxmemory="0") == (0, 0)


def test_as_an_option() -> None:
    """M1.6 `maxmemory` is a number of bytes, or a percentage"""
    cfg = load(None, {}, {"maxmemory": "40%"})
    assert cfg.maxmemory == Percent(40) and 'maxmemory = "40%"  # command line' in print_lines(cfg)
    config_set(cfg, "maxmemory-clients", "5%")
    assert config_get(cfg, "maxmemory-clients") == [("maxmemory-clients", "5%")]
    config_set(cfg, "maxmemory", "2gb")
    assert config_get(cfg, "maxmemory") == [("maxmemory", str(2 * GB))]
    for bad in ("0%", "101%", "-5%", "%", "5.5%", "5%mb"):
        with pytest.raises(ConfigError):
            config_set(cfg, "maxmemory", bad)


def put(root: Path, name: str, text: str) -> None:
    place = root / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_cgroups(tmp_path: Path) -> None:
    """M1.6 a percentage of the machine's memory, or of what the cgroup of the process or one above
    it may have, v2 or v1, if that is less
    """
    machine = memory_bytes(tmp_path)
    assert machine == memory_bytes(tmp_path) > 0
    put(tmp_path, "proc/self/cgroup", "0::/a/b\n")
    put(tmp_path, "sys/fs/cgroup/a/b/memory.max", "max\n")
    assert memory_bytes(tmp_path) == machine
    put(tmp_path, "sys/fs/cgroup/a/memory.max", "50000000\n")
    assert memory_bytes(tmp_path) == 50_000_000
    put(tmp_path, "sys/fs/cgroup/a/b/memory.max", "40000000\n")
    assert memory_bytes(tmp_path) == 40_000_000
    put(tmp_path, "proc/self/cgroup", "12:cpu:/x\n5:memory:/docker/1\n")
    assert memory_bytes(tmp_path) == machine
    v1 = "sys/fs/cgroup/memory"
    put(tmp_path, f"{v1}/memory.limit_in_bytes", "30000000\n")  # a container sees its own on top
    assert memory_bytes(tmp_path) == 30_000_000
    put(tmp_path, f"{v1}/docker/1/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_bytes(tmp_path) == 30_000_000
