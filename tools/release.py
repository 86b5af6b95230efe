"""Makes a release in a local folder, step by step. It publishes nothing.

    python tools/release.py 0.5.0               # all steps, in their order
    python tools/release.py 0.5.0 --step build  # one of them; each may be repeated

| step | what it does |
|---|---|
| tree | nothing is uncommitted, and `make test-deep` passed on these sources |
| version | version and date into CHANGELOG.md and all files with the version; commits them |
| tag | signs the tag `vVERSION` |
| build | sdists and wheels, twice: they must be equal (tools/wheels.py) |
| check | twine, check-wheel-contents, SBOMs, and the list of wheels that cibuildwheel would build |
| install | each Python installs them from the folder alone, and runs `tuque selftest` |
| image | the container image, of these wheels, where docker runs |
| sums | SHA256SUMS |

What is then in the folder, a person uploads: the node first.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

import archives
import wheels
from wheels import ROOT, read, run

# Each file that has the version, and the text around it.
VERSIONED: Final = {
    "src/tuque/__init__.py": '__version__ = "{}"',
    "src/tuque/server/__init__.py": '__version__ = "{}"',
    "pyproject.toml": '"tuque-node=={}"',
    "node/pyproject.toml": '"tuque=={}"',
}
CHANGELOG: Final = "CHANGELOG.md"
FIGURES: Final = "docs/figures.md"
UNRELEASED: Final = "## Unreleased\n"
PASSED: Final = re.compile(r"`make test-deep` on \S+, commit (\S+): passed")
TOOLS: Final = ("twine", "check-wheel-contents", "cibuildwheel")
PINS: Final = "constraints-release.txt"
SIZES_MAX: Final = {"tuque-": 900_000, "tuque_node-": 16_000_000}  # bytes of a wheel
# W009: two packages at the top: Spark looks up pyspark_tuque by name, mypyc has its library there.
# W004: that library has a name that no import statement can have, and only mypyc imports it.
IGNORED: Final = "W004,W009"
# The wheels of a published node, with platforms and architectures.
PLATFORMS: Final = {
    "linux x86_64": ("manylinux_x86_64", "musllinux_x86_64"),
    "linux aarch64": ("manylinux_aarch64", "musllinux_aarch64"),
    "macos arm64": ("macosx_arm64",),
}


@dataclass(frozen=True)
class Release:
    """What is asked for."""

    version: str
    out: Path
    is_pure: bool = False
    is_untested: bool = False
    is_unsigned: bool = False

    @property
    def tag(self) -> str:
        return f"v{self.version}"


def stop(text: str) -> None:
    """Exit with one line for people."""
    sys.exit(f"error: {text}")


def git(*words: str) -> str:
    return run(["git", *words]).strip()


# ---- the steps


def tree(release: Release) -> None:
    """Nothing is uncommitted; the tests passed on these sources."""
    if changed := git("status", "--porcelain"):
        stop(f"uncommitted changes: commit or remove them first\n{changed}")
    if release.is_untested:
        print("tests: not looked at, as asked")
        return
    found = PASSED.search(read(FIGURES))
    if found is None:
        stop(f"{FIGURES} has no `make test-deep` that passed: run it, and commit the page")
        return
    since = git("diff", "--name-only", found[1], "HEAD").splitlines()
    own = {*VERSIONED, CHANGELOG, FIGURES}
    if others := [name for name in since if name not in own]:
        stop(f"`make test-deep` passed before {', '.join(others[:5])} changed: run it again")
    print(f"tests: passed on {found[1]}")


def version(release: Release) -> None:
    """Set version and date, and commit them."""
    now = wheels.version()
    for name, around in VERSIONED.items():
        text = read(name)
        if text.count(around.format(now)) != 1:
            stop(f"{name} does not have {around.format(now)} once")
        write(name, text.replace(around.format(now), around.format(release.version)))
    text = read(CHANGELOG)
    if f"\n## {release.version} - " not in text:
        if UNRELEASED not in text:
            stop(f"{CHANGELOG} has neither `{UNRELEASED.strip()}` nor {release.version}")
        write(CHANGELOG, dated(text, release.version))
    if git("status", "--porcelain"):
        git("commit", "-q", "-a", "-m", f"release: version {release.version}")
    print(f"version: {release.version}, commit {git('rev-parse', '--short', 'HEAD')}")


def dated(text: str, version: str) -> str:
    """The changelog whose Unreleased is that version, of today. Exits if nothing is in it."""
    before, _, rest = text.partition(UNRELEASED)
    if not rest.split("\n## ", 1)[0].strip():
        stop(f"{CHANGELOG}: nothing is unreleased")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"{before}## {version} - {today}\n{rest}"


def write(name: str, text: str) -> None:
    (ROOT / name).write_text(text, "utf-8")


def tag(release: Release) -> None:
    """Sign the tag, unless it is here already."""
    head = git("rev-parse", "HEAD")
    if git("tag", "--list", release.tag):
        if git("rev-parse", f"{release.tag}^{{commit}}") != head:
            stop(f"the tag {release.tag} is of another commit: choose another version")
    else:
        kind = "--annotate" if release.is_unsigned else "--sign"
        git("tag", kind, release.tag, "-m", f"Tuque {release.version}")
    print(f"tag: {release.tag}" + (", not signed, as asked" if release.is_unsigned else ""))


def build(release: Release) -> None:
    """Build twice and compare."""
    if wheels.version() != release.version:
        stop(f"the tree has version {wheels.version()}: the step `version` sets it")
    shutil.rmtree(release.out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        made = [build_once(release, Path(name) / one) for one in ("first", "second")]
    first, second = ({path.name: path for path in files} for files in made)
    if first.keys() != second.keys():
        stop(f"two builds have other files: {', '.join(first.keys() ^ second.keys())}")
    if found := [line for one in first for line in archives.differences(first[one], second[one])]:
        stop("two builds differ:\n" + "\n".join(found))
    for path in second.values():
        path.unlink()
    (release.out / "second").rmdir()
    for path in first.values():
        print(f"build: {wheels.moved(path, release.out).name}")
    (release.out / "first").rmdir()


def build_once(release: Release, scratch: Path) -> list[Path]:
    """All files of one build, in a folder of the release."""
    scratch.mkdir()
    out = release.out / scratch.name
    return wheels.build(wheels.pythons(), out, scratch, is_pure=release.is_pure)


def check(release: Release) -> None:
    """What other programs say of the files."""
    files = archives_of(release)
    tools = tools_of(ROOT / "build" / "release")
    run([str(tools / "twine"), "check", "--strict", *map(str, files)])
    built = [path for path in files if path.suffix == ".whl"]
    run([str(tools / "check-wheel-contents"), "--ignore", IGNORED, *map(str, built)])
    for path in built:
        check_wheel(path)
    found = sorted(planned(tools))
    if found != sorted(wanted()):
        stop(f"cibuildwheel would build {found}, not {sorted(wanted())}")
    print(f"check: {len(files)} files are sound; {len(found)} compiled wheels are planned")


def archives_of(release: Release) -> list[Path]:
    """The sdists and wheels of the release; exits without any."""
    files = sorted([*release.out.glob("*.whl"), *release.out.glob("*.tar.gz")])
    if not files:
        stop(f"{release.out} has no files: the step `build` makes them")
    return files


def check_wheel(path: Path) -> None:
    """Its size, and that it has its SBOM."""
    for start, most in SIZES_MAX.items():
        if path.name.startswith(start) and path.stat().st_size > most:
            stop(f"{path.name} has {path.stat().st_size:,} bytes; at most {most:,} are wanted")
    with zipfile.ZipFile(path) as wheel:
        if not [name for name in wheel.namelist() if ".dist-info/sboms/" in name]:
            stop(f"{path.name} has no SBOM")


def tools_of(place: Path) -> Path:
    """The folder of the programs that look at the files."""
    stamp = place / "pins"
    if not stamp.is_file() or stamp.read_text() != read(PINS):
        python = wheels.empty_environment(next(iter(wheels.pythons().values())), place)
        run([str(python), "-m", "pip", "install", "-q", "-c", PINS, *TOOLS])
        stamp.write_text(read(PINS))
    return place / "bin"


def planned(tools: Path) -> list[str]:
    """The wheels that cibuildwheel would build."""
    found = []
    for one in PLATFORMS:
        platform, machine = one.split()
        words = ["--print-build-identifiers", "--platform", platform, "--archs", machine, "node"]
        found += run([str(tools / "cibuildwheel"), *words]).split()
    return found


def wanted() -> list[str]:
    """The wheels that a published node has."""
    kinds = [kind for one in PLATFORMS.values() for kind in one]
    return [f"cp3{minor}-{kind}" for minor in wheels.MINORS for kind in kinds]


def install(release: Release) -> None:
    """Each Python installs from the folder alone."""
    archives_of(release)
    with tempfile.TemporaryDirectory() as name:
        for line in wheels.try_all(wheels.pythons(), release.out, Path(name)):
            print(f"install: {line}")


def image(release: Release) -> None:
    """The container image, if docker runs here."""
    asked = ["docker", "version", "--format", "{{.Server.Version}}"]
    if shutil.which("docker") is None or subprocess.run(asked, capture_output=True).returncode:
        print("image: left out, docker does not run here")
        return
    name = f"tuque:{release.version}"
    with tempfile.TemporaryDirectory() as place:
        for path in archives_of(release):
            shutil.copy2(path, place)
        words = ["-f", "deploy/docker/Dockerfile", "-t", name, "--build-context", f"wheels={place}"]
        run(["docker", "build", *words, "."])
    print(f"image: {name}")


def sums(release: Release) -> None:
    """A line for each file, as sha256sum reads them."""
    files = archives_of(release)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (release.out / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    print(f"sums: {len(lines)} files; all is in {release.out}")


STEPS: Final[tuple[Callable[[Release], None], ...]] = (
    tree,
    version,
    tag,
    build,
    check,
    install,
    image,
    sums,
)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version")
    names = [step.__name__ for step in STEPS]
    parser.add_argument("--step", choices=names, help="this one alone")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder")
    parser.add_argument("--pure", action="store_true", help="compile nothing")
    parser.add_argument("--untested", action="store_true", help="do not ask whether tests passed")
    parser.add_argument("--unsigned", action="store_true", help="a tag without a signature")
    args = parser.parse_args()
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", args.version):
        stop(f"{args.version} is no version such as 0.5.0 or 0.5.0rc1")
    release = Release(args.version, args.out.absolute(), args.pure, args.untested, args.unsigned)
    for step in STEPS:
        if args.step in (None, step.__name__):
            step(release)


if __name__ == "__main__":
    main()
