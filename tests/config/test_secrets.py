"""Secrets of a cluster: which are refused, where they are read, how they change (SPEC B1)."""

from __future__ import annotations

import secrets
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from random import Random
from string import ascii_lowercase, digits

import pytest

from tuque.server.config.config import Config, ConfigError, cluster_secrets, config_set, load
from tuque.smallfile import bits_of, is_weak_key, is_weak_secret

ONE = secrets.token_urlsafe(32)
TWO = secrets.token_hex(16)
WEAK = [
    "a secret of sixteen",
    "password",
    "0123456789abcdef",
    "correct horse battery staple and three more",
    "x" * 500,
    "0123456789" * 40,
    "Password1!" * 20,
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh",
    "CorrectHorseBatteryStapleAndMore",
    "deadbeef" * 8,
    "31415926535897932384626433832795028841",
    "ü" * 100,
    "root:x:0:0:root:/root:/bin/bash",
    "https://example.org/cluster/secret",
    "CorrectHorse-Battery-Staple-2024!",
    'cluster_secret = "changeme-in-production"',
]
MAKERS = {
    "ours": lambda r: urlsafe_b64encode(r.randbytes(32)).decode().rstrip("="),
    "base64 of 24 bytes": lambda r: b64encode(r.randbytes(24)).decode(),
    "base64 of 16 bytes": lambda r: b64encode(r.randbytes(16)).decode(),
    "letters and digits": lambda r: "".join(r.choices(ascii_lowercase + digits, k=32)),
    "hex": lambda r: r.randbytes(16).hex(),
    "capital hex": lambda r: r.randbytes(16).hex().upper(),
    "digits": lambda r: "".join(r.choices("0123456789", k=42)),
    "words": lambda r: " ".join("".join(r.choices(ascii_lowercase, k=6)) for _ in range(12)),
}


def loaded(tmp_path: Path, **sets: str) -> Config:
    """The options, as from the command line."""
    return load(None, {}, {"dir": str(tmp_path), **sets})


@pytest.mark.parametrize("secret", WEAK)
def test_a_secret_that_can_be_guessed_is_refused(tmp_path: Path, secret: str) -> None:
    """B1.5 A secret estimated to have less than 128 bits of chance is refused, at the start and
    by CONFIG SET; the error names `tuque cluster secret`, which makes one.
    """
    for name in ("cluster-secret", "cluster-secret-also"):
        sets = {"cluster-secret": ONE, name: secret}
        with pytest.raises(ConfigError, match="tuque cluster secret") as error:
            loaded(tmp_path, **sets)
        assert secret not in str(error.value)
    (tmp_path / "file").write_text(secret + "\n")
    cfg = loaded(tmp_path, cluster_secret_file="file")
    with pytest.raises(ConfigError, match="tuque cluster secret"):
        cluster_secrets(cfg)
    cfg = loaded(tmp_path, cluster_secret=ONE)
    with pytest.raises(ConfigError) as refused:
        config_set(cfg, "cluster-secret", secret)
    assert "tuque cluster secret" in refused.value.reply and secret not in refused.value.reply
    assert cfg.cluster_secret == ONE


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_a_program_has_drawn_is_accepted(make: object) -> None:
    """B1.5 The estimate is the number of characters times the bits of their alphabet"""
    chance = Random(1)
    for _ in range(300):
        secret = make(chance)  # type: ignore[operator]  # a function of the table
        assert not is_weak_secret(secret), secret


def test_the_estimate() -> None:
    """B1.5 Characters that repeat a piece of six count once."""
    assert bits_of("8f1c0a7be4d93265") == 64
    assert bits_of("0123456789") == 33
    assert bits_of("abcdef0123456789" * 9) == bits_of("abcdef0123456789") + 20
    assert bits_of("aB3") == 12 and bits_of("zB3") == 17
    assert bits_of("words, and 2026.") == 24 and bits_of("w, 0") > 12
    assert (
        bits_of("0110100110010110" * 4) < 64
        and bits_of("".join(Random(1).choices("01", k=64))) < 102
    )
    assert not is_weak_secret("")


def test_secrets_of_bytes() -> None:
    """B1.5 Bytes that are no text count 6 each."""
    chance = Random(1)
    assert not any(is_weak_key(chance.randbytes(32)) for _ in range(300))
    for weak in (b"\xff" * 32, b"\0" * 32, bytes(range(128, 148)), b"secret of the console " * 3):
        assert is_weak_key(weak), weak


def test_two_secrets_in_a_file(tmp_path: Path) -> None:
    """B1.6: or the first two lines of `cluster-secret-file`"""
    (tmp_path / "file").write_text(f"{ONE}\n{TWO}\n# more\n")
    cfg = loaded(tmp_path, cluster_secret_file="file")
    assert cluster_secrets(cfg) == [ONE.encode(), TWO.encode()]
    (tmp_path / "file").write_text(f"{TWO}\r\n")
    config_set(cfg, "cluster-secret-file", "file")
    assert cluster_secrets(cfg) == [TWO.encode()]
    (tmp_path / "file").write_text("\n")
    with pytest.raises(ConfigError, match="first line"):
        config_set(cfg, "cluster-secret-file", "file")
    with pytest.raises(ConfigError):
        config_set(cfg, "cluster-secret-file", "no such file")
    assert cfg.cluster_secret_file == "file"


def test_the_secret_of_a_running_node_is_replaced_and_not_removed(tmp_path: Path) -> None:
    """B1.6 The secret of a running node can be replaced, but not removed."""
    cfg = loaded(tmp_path, cluster_secret=ONE)
    config_set(cfg, "cluster-secret-also", TWO)
    assert cluster_secrets(cfg) == [ONE.encode(), TWO.encode()]
    config_set(cfg, "cluster-secret", TWO)
    config_set(cfg, "cluster-secret-also", ONE)
    config_set(cfg, "cluster-secret-also", "")
    assert cluster_secrets(cfg) == [TWO.encode()]
    with pytest.raises(ConfigError):
        config_set(cfg, "cluster-secret", "")
    (tmp_path / "file").write_text(ONE)
    with pytest.raises(ConfigError) as error:
        config_set(cfg, "cluster-secret-file", "file")
    assert "not both" in error.value.reply
    assert cluster_secrets(cfg) == [TWO.encode()]


def test_one_place_for_secrets(tmp_path: Path) -> None:
    for sets in (
        {"cluster-secret": ONE, "cluster-secret-file": "f"},
        {"cluster-secret-also": ONE},
        {"cluster-secret-also": ONE, "cluster-secret-file": "f"},
    ):
        with pytest.raises(ConfigError):
            loaded(tmp_path, **sets)
