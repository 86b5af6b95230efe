"""Build with the deciding modules compiled by mypyc when that is possible, else pure.

TUQUE_INTERPRETED=1 asks for the pure build.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import setup

SRC = Path("src/tuque")
ROOMS = ("core", "cluster", "tubes", "wire", "store")
SERVER = (
    *("pump", "lookout", "gather", "pace", "peers", "link", "bus_figures", "clients", "clock"),
    *("connection", "chore", "tell_events", "load_share", "chores", "id_cmds", "scan"),
    *("views_cmds", "dispatch", "doors", "outlet", "poller", "producers", "stage_cmds", "state"),
    *("tube_where", "iproto_conn", "iproto_door", "iproto_calls", "iproto_queue"),
    *("iproto_replies", "iproto_tubes", "tube_cmds", "tube_replies", "tube_sync", "tube_words"),
    *("tube_turn", "standstill", "tube_chores", "tube_stats"),
)
# one opens files, the others hold classes that msgspec makes
PURE = {SRC / "store" / "disk.py", SRC / "core" / "msgs.py", SRC / "wire" / "cards.py"}


def compiled_files() -> list[str]:
    """Name the modules that mypyc takes, as one group."""
    files = {path for room in ROOMS for path in (SRC / room).glob("*.py")}
    files |= {SRC / "server" / f"{name}.py" for name in SERVER}
    files = {path for path in files if path.is_file() and path.name != "__init__.py"}
    return sorted(str(path) for path in files - PURE)


def why_not_compiled() -> str:
    """Return what stands in the way of compiling, or nothing."""
    if os.environ.get("TUQUE_INTERPRETED", "") not in ("", "0"):
        return "TUQUE_INTERPRETED is set"
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(command[0]) is None and "CC" not in os.environ and shutil.which("cc"):
        os.environ["CC"] = "cc"  # Python was built with a compiler that this machine has not
        command = ["cc"]
    if shutil.which(command[0]) is None:
        return "no C compiler found"
    include = sysconfig.get_path("include")
    with tempfile.TemporaryDirectory() as scratch:
        probe = Path(scratch) / "probe.c"
        probe.write_text("#include <Python.h>\nint main(void) { return 0; }\n")
        built = subprocess.run(
            [*command, f"-I{include}", "-c", str(probe), "-o", str(probe.with_suffix(".o"))],
            capture_output=True,
            check=False,
        )
    if built.returncode:
        return "no Python headers found (python3-dev) or the C compiler does not work"
    try:
        import mypyc.build  # noqa: F401  only asks whether it is there
    except ImportError:
        return "mypyc is not installed"
    return ""


def extensions() -> list[object]:
    """Return the C extensions to build; none means that everything runs interpreted."""
    reason = why_not_compiled()
    if reason:
        print(f"{reason}: Tuque runs interpreted", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    flags = ["--config-file=pyproject.toml"]
    return list(mypycify([*flags, *compiled_files()], opt_level="3", debug_level="0"))


if __name__ == "__main__":
    if sys.argv[1:] == ["why"]:
        print(why_not_compiled())
    else:
        building = {"build_ext", "bdist_wheel", "build", "install", "develop", "editable_wheel"}
        setup(ext_modules=extensions() if building & set(sys.argv) else [])
