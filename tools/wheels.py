"""Builds what a release has, in dist/: sdists and wheels of both distributions, and tries them.

    python tools/wheels.py             # all
    python tools/wheels.py --pure      # nothing compiled: seconds

`tuque` and `tuque-node` have an sdist and a pure wheel each, and the node a compiled wheel for each
Python 3.11+ of this machine. Each distribution is laid out in a folder of its own, and its wheels
are built from its sdist. Of one commit sdists and pure wheels are equal byte for byte. Each Python
installs them into an empty environment, from that folder alone, and runs `tuque selftest`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

import archives
from setup_env import NODE, PROJECTS, requirements

ROOT: Final = Path(__file__).resolve().parent.parent
MINORS: Final = (11, 12, 13, 14)
TUQUE, TUQUE_NODE = "tuque", "tuque-node"
REQUIRED: Final = "requirements"  # the folder with what both require, beside the wheels
SDIST: Final = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
OLDEST_S: Final = 315_532_800  # 1980: a zip has no earlier time
LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
# The compiler reads the types of all sources; simulator and demo are in no wheel.
MANIFEST: Final = "graft src\ngraft sim\ngraft examples\n"


# ---- Pythons and environments


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


def run(command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run quietly, in the tree unless told; return what it wrote. On failure show that and exit."""
    done = subprocess.run(
        command, cwd=cwd or ROOT, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
        sys.exit(f"error: `{' '.join(command[:6])} ...` failed")
    return done.stdout


def pip(python: Path, *words: str) -> list[str]:
    """The words of a call of pip, quiet, with the pins of the tree."""
    pins = str(ROOT / "constraints.txt")
    return [str(python), "-m", "pip", words[0], "-q", "-c", pins, *words[1:]]


def epoch_s() -> int:
    """The time that all files of a build have: of the commit, unless SOURCE_DATE_EPOCH says it."""
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not told:
        asked = ["git", "log", "-1", "--format=%ct"]
        done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
        told = done.stdout.strip()
    return max(int(told or 0), OLDEST_S)


# ---- building


def version() -> str:
    """The version of the tree."""
    (found,) = re.findall(r'^__version__ = "(.+?)"', read("src/tuque/__init__.py"), re.M)
    return str(found)


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def lay_out(name: str, place: Path) -> Path:
    """Copy what a distribution is made of into an empty folder."""
    project = place / name
    project.mkdir(parents=True)
    shutil.copy2(ROOT / "LICENSE", project)
    own = ROOT / "node" if name == TUQUE_NODE else ROOT
    for file in ("pyproject.toml", "README.md"):
        shutil.copy2(own / file, project)
    shutil.copytree(ROOT / "src", project / "src", ignore=LEFT_OUT)
    if name == TUQUE_NODE:
        shutil.copy2(own / "setup.py", project)
        for folder in ("sim", "examples"):
            shutil.copytree(ROOT / folder, project / folder, ignore=LEFT_OUT)
        (project / "MANIFEST.in").write_text(MANIFEST)
    else:
        for room in NODE:
            shutil.rmtree(project / "src" / "tuque" / room)
    return project


def build_requirements(name: str) -> list[str]:
    """What the build of a distribution needs."""
    project = PROJECTS[1] if name == TUQUE_NODE else PROJECTS[0]
    return list(tomllib.loads(read(project))["build-system"]["requires"])


def builder_of(python: str, place: Path) -> Path:
    """An environment that can build both, with the pinned versions."""
    builder = empty_environment(python, place)
    run(pip(builder, "install", *build_requirements(TUQUE), *build_requirements(TUQUE_NODE)))
    return builder


def sdist(builder: Path, name: str, scratch: Path, out: Path) -> Path:
    """Build the sdist of a distribution; return its path."""
    project = lay_out(name, scratch / "laid-out")
    made = scratch / "sdist"
    run([str(builder), "-c", SDIST, str(made)], cwd=project)
    shutil.rmtree(scratch / "laid-out")
    (one,) = made.glob("*.tar.gz")
    archives.settle_sdist(one, epoch_s())
    return moved(one, out)


def wheel(builder: Path, source: Path, scratch: Path, out: Path, *, is_pure: bool) -> Path:
    """Build a wheel from an sdist; return its path."""
    made = scratch / "wheel"
    env = {
        **os.environ,
        "TUQUE_INTERPRETED": "1" if is_pure else "0",
        "SOURCE_DATE_EPOCH": str(epoch_s()),
    }
    run(
        pip(builder, "wheel", "--no-deps", "--no-build-isolation", "-w", str(made), str(source)),
        env,
    )
    (one,) = made.glob("*.whl")
    archives.settle_wheel(one, epoch_s(), read("constraints.txt"))
    return moved(one, out)


def moved(file: Path, out: Path) -> Path:
    """Move a file into a folder, in place of one of that name; return its path there."""
    out.mkdir(parents=True, exist_ok=True)
    place = out / file.name
    shutil.move(file, place)
    return place


def build(found: dict[int, str], out: Path, scratch: Path, *, is_pure: bool) -> list[Path]:
    """Build all that the Pythons can; the first of them builds what is not compiled."""
    made: list[Path] = []
    for number, (minor, python) in enumerate(found.items()):
        if number and is_pure:
            break
        builder = builder_of(python, scratch / f"builder-{minor}")
        if number == 0:
            for name in (TUQUE, TUQUE_NODE):
                made.append(sdist(builder, name, scratch, out))
                made.append(wheel(builder, made[-1], scratch, out, is_pure=True))
        if not is_pure:
            made.append(wheel(builder, made[2], scratch, out, is_pure=False))
    return made


# ---- trying


def collect_requirements(python: str, out: Path, scratch: Path) -> None:
    """Put wheels of all that both distributions require into the folder beside them."""
    user = empty_environment(python, scratch / "collector")
    run(pip(user, "wheel", "-w", str(out / REQUIRED), *requirements(["server"], [])))


def plain() -> dict[str, str]:
    """The environment of a user: no setting of the machine may name another place for packages."""
    left_out = ("PYTHONPATH", "TUQUE_URL")
    kept = {key: value for key, value in os.environ.items() if key not in left_out}
    kept = {key: value for key, value in kept.items() if not key.startswith("PIP_")}
    return kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def install(python: str, out: Path, place: Path, wanted: Iterable[str]) -> float:
    """Install into an empty environment, from that folder alone; how long it took."""
    user = empty_environment(python, place)
    places = ["--no-index", "--find-links", str(out), "--find-links", str(out / REQUIRED)]
    began_s = time.monotonic()
    run([str(user), "-m", "pip", "install", "-q", *places, *wanted], plain())
    return time.monotonic() - began_s


def try_node(python: str, out: Path, place: Path, wanted: Iterable[str]) -> str:
    """Install the node and let it pass a job."""
    took_s = install(python, out, place, wanted)
    told = run([str(place / "bin" / "tuque"), "selftest"], plain(), cwd=place)
    return f"installed in {took_s:.1f} s; {told.splitlines()[0]}"


def try_alone(python: str, out: Path, place: Path) -> str:
    """Install `tuque` alone: what it requires, and that client, worker and program load."""
    install(python, out, place, [f"{TUQUE}=={version()}"])
    user = place / "bin" / "python"
    run([str(user), "-c", "import tuque.aio, tuque.worker, tuque.client.sync"], plain(), cwd=place)
    run([str(place / "bin" / "tuque"), "cli", "help"], plain(), cwd=place)
    listed = run([str(user), "-m", "pip", "list", "--format=freeze"], plain()).lower().split()
    names = [line.partition("==")[0] for line in listed]
    others = sorted(set(names) - {TUQUE, "pip", "setuptools"})
    return f"{TUQUE} alone, which requires {', '.join(others)}"


def try_all(found: dict[int, str], out: Path, scratch: Path) -> list[str]:
    """A line for each Python: by name as users do; where that is compiled, of the pure ones too."""
    lines = []
    place = scratch / "user"
    by_name = [f"{TUQUE}[server]=={version()}"]
    pure = [str(path) for path in sorted(out.glob(f"*-{version()}-py3-none-any.whl"))]
    for minor, python in found.items():
        collect_requirements(python, out, scratch)
        lines.append(f"3.{minor}  {try_alone(python, out, place)}")
        lines.append(f"3.{minor}  {try_node(python, out, place, by_name)}")
        if any(f"-cp3{minor}-cp3{minor}-" in path.name for path in out.glob("*.whl")):
            lines.append(f"3.{minor}  {try_node(python, out, place, pure)}")
    return lines


def main() -> None:
    """Build and try; prints a line per file, and per Python and kind of node."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pure", action="store_true", help="compile nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where all goes")
    args = parser.parse_args()
    found = pythons()
    if not found:
        sys.exit("error: no Python 3.11 or later with venv found")
    out = args.out.absolute()
    with tempfile.TemporaryDirectory() as name:
        for path in build(found, out, Path(name), is_pure=args.pure):
            print(f"{path.name}  {path.stat().st_size / 1e6:.2f} MB")
        for line in try_all(found, out, Path(name)):
            print(line)


if __name__ == "__main__":
    main()
