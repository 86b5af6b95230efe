"""Build the node with the deciding modules compiled by mypyc when that is possible, else pure.

TUQUE_INTERPRETED=1 asks for the pure build, TUQUE_OPT=1 for one that is made sooner and is slower.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

SRC = Path("src/tuque")
# mypyc takes these folders with all in them
ROOMS = ("core", "cluster", "tubes", "wire", "store")
SERVER = (
    "access",
    "bus",
    "commands",
    "loop",
    "net",
    "observe",
    "replies",
    "state",
    "users",
)
FILES = ("server/config/patterns.py",)  # of a folder that is not compiled
# but for these: classes that msgspec makes, and what opens files
PURE = {
    "core/msgs/bus.py",
    "core/msgs/entries.py",
    "core/msgs/records.py",
    "server/commands/cron.py",
    "server/commands/firing.py",
    "server/commands/groups.py",
    "server/commands/schedules.py",
    "server/commands/topics.py",
    "server/net/tls_acceptor.py",
    "server/net/tls_keys.py",
    "store/disk.py",
    "wire/bus/card.py",
}
LEVEL = os.environ.get("TUQUE_OPT", "2")  # 3 in one file took twice the time and was 1 % slower
# The files call each other directly: nothing may take the place of their functions at load time.
LOCAL = ["-fvisibility=hidden", "-fno-semantic-interposition"]


def compiled_files() -> list[str]:
    """Name the modules that mypyc takes, as one group."""
    folders = [SRC / room for room in ROOMS] + [SRC / "server" / room for room in SERVER]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    found = [
        path
        for path in files
        if path.name != "__init__.py" and str(path.relative_to(SRC)) not in PURE
    ]
    return sorted(str(path) for path in (*found, *(SRC / name for name in FILES)))


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


class SideBySide(build_ext):
    """Compiles C files side by side, one a core, and tells how many are done."""

    def finalize_options(self) -> None:
        """Build the extensions side by side, too, unless told otherwise."""
        super().finalize_options()
        self.parallel = self.parallel or cores()

    def build_extensions(self) -> None:
        """Build all, with a compiler that takes many files at once."""
        compile_here = self.compiler.compile
        count = sum(len(extension.sources) for extension in self.extensions)
        done: list[str] = []

        def compile_one(source: str, *args: object, **options: object) -> list[str]:
            objects = compile_here([source], *args, **options)
            done.append(source)
            print(f"compiled {len(done)} of {count} C files", file=sys.stderr, flush=True)
            return objects

        def compile_all(sources: list[str], *args: object, **options: object) -> list[str]:
            # the largest first: else a core may end up alone with it
            largest = sorted(sources, key=os.path.getsize, reverse=True)
            with ThreadPoolExecutor(cores()) as pool:
                made = pool.map(lambda source: compile_one(source, *args, **options), largest)
                return [name for objects in made for name in objects]

        self.compiler.compile = compile_all
        super().build_extensions()


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def extensions() -> list[object]:
    """Return the C extensions to build; none means that everything runs interpreted."""
    reason = why_not_compiled()
    if reason:
        print(f"{reason}: Tuque runs interpreted", file=sys.stderr)
        return []
    from mypyc.build import mypycify

    flags = ["--config-file=pyproject.toml"]
    found = mypycify([*flags, *compiled_files()], opt_level=LEVEL, debug_level="0", multi_file=True)
    for extension in found:
        extension.extra_compile_args += LOCAL
    return list(found)


if __name__ == "__main__":
    if sys.argv[1:] == ["why"]:
        print(why_not_compiled())
    else:
        # Not for an editable install: what is compiled would lie among the sources, and hide them.
        building = {"build_ext", "bdist_wheel", "build", "install"}
        setup(
            ext_modules=extensions() if building & set(sys.argv) else [],
            cmdclass={"build_ext": SideBySide},
        )
