"""Builds wheels in dist/: a compiled one for each Python 3.11+ of this machine, and a pure one.

    python tools/wheels.py             # all
    python tools/wheels.py --pure      # only the pure one: seconds

Each wheel is installed into an empty environment, and a node started from it must respond.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MINORS: Final = (11, 12, 13, 14)
DEADLINE_S: Final = 30


def pythons() -> dict[int, str]:
    """Return the Pythons that the machine has, by minor version."""
    found: dict[int, str] = {}
    for minor in MINORS:
        places = [shutil.which(f"python3.{minor}") or ""]
        root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
        places += [str(one) for one in sorted(root.glob(f"versions/3.{minor}.*/bin/python"))]
        if sys.version_info[:2] == (3, minor):
            places.insert(0, getattr(sys, "_base_executable", sys.executable))
        for place in filter(None, places):
            probe = f"import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, {minor}))"
            if subprocess.run([place, "-c", probe], capture_output=True, check=False).returncode:
                continue
            found[minor] = place
            break
    return found


def empty_environment(python: str, place: Path) -> Path:
    """Create an environment without packages; return its Python."""
    subprocess.run([python, "-m", "venv", "--clear", str(place)], check=True)
    return place / "bin" / "python"


def run(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run quietly; on failure show the output and exit."""
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
        sys.exit(f"error: `{' '.join(command[:6])} ...` failed")


def wheel(python: str, scratch: Path, out: Path, *, is_pure: bool) -> Path:
    """Build one wheel, isolated, with pinned build requirements; return its path."""
    builder = empty_environment(python, scratch / "builder")
    sources = scratch / "sources"  # a build leaves files: keep them out of the tree
    shutil.rmtree(sources, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "src", sources / "src", ignore=ignore)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, sources)
    made = scratch / "made"
    shutil.rmtree(made, ignore_errors=True)
    pins = str(ROOT / "constraints.txt")
    env = {**os.environ, "PIP_CONSTRAINT": pins, "TUQUE_INTERPRETED": "1" if is_pure else "0"}
    pip = [str(builder), "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(made)]
    run([*pip, str(sources)], env)
    (one,) = made.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(one, out))


def check(python: str, built: Path, scratch: Path) -> float:
    """Install the wheel into an empty environment and query a node; the install's seconds."""
    place = scratch / "user"
    user = empty_environment(python, place)
    began = time.monotonic()
    run([str(user), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), str(built)])
    took_s = time.monotonic() - began
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(place / "bin" / "tuque"), "server", "--port", str(port), "--dir", str(place)]
    with (scratch / "node.log").open("wb") as log:
        node = subprocess.Popen(command, cwd=place, env=env, stdout=log, stderr=log)
    try:
        ask(port, node, scratch / "node.log")
    finally:
        node.terminate()
        node.wait(DEADLINE_S)
    return took_s


def ask(port: int, node: subprocess.Popen[bytes], log: Path) -> None:
    """Send PING until the node replies."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until and node.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as link:
                link.sendall(b"PING\r\n")
                if link.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"error: no answer of the installed node\n{log.read_text()}")


def main() -> None:
    """Build and check; prints a line per wheel and Python."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pure", action="store_true", help="the pure wheel alone")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where wheels go")
    args = parser.parse_args()
    found = pythons()
    if not found:
        sys.exit("error: no Python 3.11 or later with venv found")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        pure = wheel(next(iter(found.values())), scratch, args.out, is_pure=True)
        for minor, python in found.items():
            print(f"3.{minor}  {pure.name}  installed in {check(python, pure, scratch):.1f} s")
        for minor, python in {} if args.pure else found.items():
            built = wheel(python, scratch, args.out, is_pure=False)
            print(f"3.{minor}  {built.name}  installed in {check(python, built, scratch):.1f} s")


if __name__ == "__main__":
    main()
