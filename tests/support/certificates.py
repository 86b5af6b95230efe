"""Certificates for tests, made by the program `openssl`: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs openssl to make certificates"
)
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


class Authority:
    """Signs certificates; `cafile` is its own."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.cafile = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        openssl(
            "req",
            "-x509",
            *KEY,
            "-nodes",
            "-days",
            "30",
            "-subj",
            f"/CN={name}",
            "-keyout",
            self._key,
            "-out",
            self.cafile,
            "-addext",
            "basicConstraints=critical,CA:TRUE",
        )

    def sign(self, name: str, days: int = 30) -> tuple[Path, Path]:
        """A certificate of that common name for this machine, and its key."""
        cert, key = (self.directory / f"{name}.{end}" for end in ("pem", "key"))
        asked, more = self.directory / f"{name}.csr", self.directory / "names"
        more.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("req", *KEY, "-nodes", "-keyout", key, "-out", asked, "-subj", f"/CN={name}")
        openssl(
            "x509",
            "-req",
            "-in",
            asked,
            "-CA",
            self.cafile,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-days",
            days,
            "-extfile",
            more,
            "-out",
            cert,
        )
        return cert, key

    def sign_for_later(self, name: str) -> tuple[Path, Path]:
        """The same, valid in the next century only."""
        cert, key = self.sign(name)
        here = self.directory
        rules = self.directory / "rules"
        rules.write_text(
            f"[ca]\ndefault_ca=one\n[one]\ndatabase={here}/index\nnew_certs_dir={here}\n"
            "rand_serial=yes\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n"
        )
        (self.directory / "index").write_text("")
        openssl(
            "ca",
            "-batch",
            "-config",
            rules,
            "-cert",
            self.cafile,
            "-keyfile",
            self._key,
            "-startdate",
            "21000101000000Z",
            "-enddate",
            "21010101000000Z",
            "-notext",
            "-in",
            self.directory / f"{name}.csr",
            "-out",
            cert,
        )
        return cert, key


def openssl(*words: object) -> None:
    """Run openssl."""
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
