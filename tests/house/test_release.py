"""tools/release.py and tools/archives.py: steps that may be repeated, and files that are equal."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import archives  # noqa: E402  tools/ is put on the path above
import release  # noqa: E402  as above
import wheels  # noqa: E402  as above
from release import Release  # noqa: E402  as above

AT_S = 1_800_000_000
PINS = "click==8.5.1\nmypy==2.4.1\nmypy_extensions==1.2.0\n"
METADATA = (
    "Name: tuque\nVersion: 0.4.0\nLicense-Expression: MIT\nRequires-Dist: click>=8.1\n"
    'Requires-Dist: mypy_extensions>=1.1\nRequires-Dist: tuque[spark]; extra == "all"\n'
    'Requires-Dist: tuque-node==0.4.0; extra == "server"\n'
)


# ---- files that are equal


def sdist(path: Path, names: list[str], at_s: int) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uid, entry.uname = 1, at_s, at_s % 1000, "somebody"
            made.addfile(entry, io.BytesIO(b"x"))
    return path


def wheel(path: Path, files: dict[str, bytes], hour: int) -> Path:
    own = {"tuque-0.4.0.dist-info/METADATA": METADATA.encode(), "tuque-0.4.0.dist-info/RECORD": b""}
    with zipfile.ZipFile(path, "w") as made:
        for name, data in (own | files).items():
            made.writestr(zipfile.ZipInfo(name, (2026, 1, 1, hour, 0, 0)), data)
    return path


def test_sdists_of_the_same_files_are_equal(tmp_path: Path) -> None:
    one = sdist(tmp_path / "one.tar.gz", ["t/a", "t/b"], 1)
    other = sdist(tmp_path / "other.tar.gz", ["t/b", "t/a"], 2)
    assert one.read_bytes() != other.read_bytes()
    for path in (one, other):
        archives.settle_sdist(path, AT_S)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as read:
        assert [(entry.name, entry.mtime) for entry in read] == [("t/a", AT_S), ("t/b", AT_S)]


def test_wheels_of_the_same_files_are_equal_and_list_what_is_in_them(tmp_path: Path) -> None:
    made = []
    for hour in (1, 2):
        folder = tmp_path / str(hour)
        folder.mkdir()
        files = {"tuque/a.py": b"1", "tuque/web/static/vendor/uplot.js": b"/*! uPlot (v1.6.32) */"}
        made.append(wheel(folder / "tuque-0.4.0-py3-none-any.whl", files, hour))
        archives.settle_wheel(made[-1], AT_S, PINS)
    assert made[0].read_bytes() == made[1].read_bytes()
    with zipfile.ZipFile(made[0]) as read:
        names = read.namelist()
        record = read.read("tuque-0.4.0.dist-info/RECORD").decode()
        document = json.loads(read.read("tuque-0.4.0.dist-info/sboms/tuque.cdx.json"))
    assert names[-1].endswith("RECORD") and {row[0] for row in csv.reader(io.StringIO(record))} == {
        *names
    }
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert {(one["purl"], one["scope"]) for one in document["components"]} == {
        ("pkg:npm/uplot@1.6.32", "required"),
        ("pkg:pypi/click@8.5.1", "required"),
        ("pkg:pypi/mypy-extensions@1.2.0", "required"),
        ("pkg:pypi/tuque-node@0.4.0", "optional"),
    }


def test_of_a_compiled_wheel_the_sbom_has_the_compiler(tmp_path: Path) -> None:
    listed = archives.components({"tuque/core/a.so": b""}, METADATA, PINS)
    assert "pkg:pypi/mypy@2.4.1" in {one["purl"] for one in listed}


@pytest.mark.parametrize(
    ("tag", "changed", "found"),
    [
        ("py3-none-any", "tuque/a.so", 1),
        ("cp311-cp311-linux_x86_64", "tuque/a.so", 0),
        ("cp311-cp311-linux_x86_64", "tuque/a.py", 1),
    ],
)
def test_two_builds_are_compared(tag: str, changed: str, found: int, tmp_path: Path) -> None:
    """Object code may differ, sources may not."""
    files = {"tuque/a.so": b"1", "tuque/a.py": b"1"}
    name = f"tuque_node-0.4.0-{tag}.whl"
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    one = wheel(tmp_path / "one" / name, files, 1)
    other = wheel(tmp_path / "other" / name, files | {changed: b"2"}, 1)
    assert archives.differences(one, one) == []
    assert len(archives.differences(one, other)) == found


# ---- steps


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the files that have the version."""
    place = tmp_path / "tree"
    for name in (*release.VERSIONED, release.CHANGELOG, release.FIGURES):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    changes = (
        f"# Changelog\n\n{release.UNRELEASED}\n- A new one.\n\n## 0.1.0 - 2026-01-01\n\n- Old.\n"
    )
    (place / release.CHANGELOG).write_text(changes)
    for module in (release, wheels):
        monkeypatch.setattr(module, "ROOT", place)
    for variable in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{variable}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{variable}_EMAIL", "somebody@example.org")
    release.git("init", "-q")
    commit(place)
    return place


def commit(place: Path) -> str:
    """Commit all; return the commit."""
    release.git("add", "-A")
    release.git("commit", "-q", "-m", "all", "--allow-empty")
    return release.git("rev-parse", "HEAD")


def test_a_version_is_set_committed_and_tagged_once(tree: Path) -> None:
    asked = Release("7.8.9", tree / "dist", is_unsigned=True)
    for _ in range(2):
        release.version(asked)
        release.tag(asked)
    assert int(release.git("rev-list", "--count", "HEAD")) == 2
    assert wheels.version() == "7.8.9"
    for name, around in release.VERSIONED.items():
        assert around.format("7.8.9") in (tree / name).read_text()
    text = (tree / release.CHANGELOG).read_text()
    assert re.search(r"^## 7\.8\.9 - \d{4}-\d\d-\d\d\n\n- A new one", text, re.M)
    assert release.UNRELEASED not in text
    commit(tree)
    with pytest.raises(SystemExit, match="the tag v7.8.9 is of another commit"):
        release.tag(asked)


def test_a_changelog_without_news_is_no_release() -> None:
    with pytest.raises(SystemExit, match="nothing is unreleased"):
        release.dated(
            f"# Changelog\n\n{release.UNRELEASED}\n## 0.1.0 - 2026-01-01\n\n- Old.\n", "1.0.0"
        )


def test_only_a_tree_whose_tests_passed_is_released(tree: Path) -> None:
    asked = Release("7.8.9", tree / "dist")
    figures = tree / release.FIGURES
    tested = commit(tree)
    figures.write_text(f"`make test-deep` on 2026-01-01, commit {tested}: failed.\n")
    commit(tree)
    with pytest.raises(SystemExit, match="no `make test-deep` that passed"):
        release.tree(asked)
    figures.write_text(f"`make test-deep` on 2026-01-01, commit {tested}: passed.\n")
    with pytest.raises(SystemExit, match="uncommitted changes"):
        release.tree(asked)
    commit(tree)
    release.tree(asked)  # the page of figures came after the tests
    (tree / "new.py").touch()
    commit(tree)
    with pytest.raises(SystemExit, match=r"before new\.py changed"):
        release.tree(asked)


def test_the_sums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    wheel(tmp_path / "tuque-0.4.0-py3-none-any.whl", {}, 1)
    release.sums(Release("0.4.0", tmp_path))
    words = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_a_wheel_that_is_too_large_or_has_no_sbom_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path / "tuque-0.4.0-py3-none-any.whl", {"tuque/a": os.urandom(1000)}, 1)
    with pytest.raises(SystemExit, match="has no SBOM"):
        release.check_wheel(path)
    wheel(path, {"tuque/a": os.urandom(release.SIZES_MAX["tuque-"])}, 1)
    with pytest.raises(SystemExit, match="at most 900,000 are wanted"):
        release.check_wheel(path)


def test_twenty_compiled_wheels_are_wanted() -> None:
    assert len(release.wanted()) == 20
    assert {"cp311-manylinux_x86_64", "cp314-macosx_arm64"} <= set(release.wanted())


# ---- all of it


@pytest.mark.slow
def test_a_release_is_installed_from_its_folder_alone(tmp_path: Path) -> None:
    """A clone makes one that is pure Python; `python tools/release.py VERSION` compiles as well."""
    clone, out = tmp_path / "clone", tmp_path / "out"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    (clone / release.CHANGELOG).write_text(f"{release.UNRELEASED}\n- All.\n")
    words = ["9.8.7", "--pure", "--untested", "--unsigned", "--out", str(out)]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for name in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{name}_NAME": "somebody", f"GIT_{name}_EMAIL": "somebody@example.org"}
    subprocess.run(["git", "commit", "-qam", "all"], cwd=clone, env=env, check=True)
    done = subprocess.run(
        [sys.executable, "tools/release.py", *words],
        cwd=clone, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tried = [line[9:] for line in done.stdout.splitlines() if line.startswith("install: ")]
    for minor in wheels.pythons():
        alone, node = (line for line in tried if line.startswith(f"3.{minor} "))
        assert alone.endswith("tuque alone, which requires click, hiredis, msgspec")
        assert "tuque 9.8.7, pure: a job was added" in node
    assert {path.name for path in out.iterdir()} == {
        "SHA256SUMS",
        "requirements",
        "tuque-9.8.7-py3-none-any.whl",
        "tuque-9.8.7.tar.gz",
        "tuque_node-9.8.7-py3-none-any.whl",
        "tuque_node-9.8.7.tar.gz",
    }


@pytest.mark.slow
def test_the_line_of_the_readme_installs_a_clone(tmp_path: Path) -> None:
    """Interpreted here: `make setup` compiles."""
    (line,) = re.findall(
        r"in the folder that the clone `tuque` is in:\n`pip (install .+?)`",
        (ROOT / "README.md").read_text(),
    )
    (first,) = re.findall(r"^pip (install 'tuque.+')$", (ROOT / "README.md").read_text(), re.M)
    assert first == "install 'tuque[server]'"  # what the test above does
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "tuque")], check=True)
    user = wheels.empty_environment(sys.executable, tmp_path / "env")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"TUQUE_INTERPRETED": "1", "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    words = [str(user), "-m", "pip", *shlex.split(line)]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    selftest = [str(tmp_path / "env" / "bin" / "tuque"), "selftest"]
    told = subprocess.run(
        selftest, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert ", pure: a job was added" in told.stdout
