"""`tuque spark submit` and `tuque spark shell`: PySpark's own programs, with our Java and settings.

Every argument goes unchanged to spark-submit or pyspark; the user's settings follow ours and win.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from tuque.spark.errors import SparkSetupError
from tuque.spark.java import find_java
from tuque.spark.session import defaults, environment

PASS_ALL: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}
ARGUMENTS = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)


def spark_home() -> Path:
    """The directory of PySpark's programs and jars. Raises SparkSetupError without PySpark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkSetupError("PySpark is missing: pip install 'tuque[spark]'")
    return Path(found.origin).parent


def chosen_master(arguments: tuple[str, ...], env: Mapping[str, str] = os.environ) -> str:
    """The master named in the arguments; else this machine."""
    master = env.get("MASTER") or "local[*]"
    for number, word in enumerate(arguments):
        name, _, value = word.partition("=")
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        if name == "--master":
            master = value or following
        elif name in ("--conf", "-c") and (value or following).startswith("spark.master="):
            master = (value or following).partition("=")[2]
        elif word.endswith((".py", ".jar")) and not word.startswith("-"):
            previous = arguments[number - 1] if number else ""
            if not previous.startswith("--"):
                break  # the rest belongs to the program
    return master


def command(program: str, arguments: tuple[str, ...]) -> list[str]:
    """The command line: our settings before the user's arguments."""
    master = chosen_master(arguments)
    settings = defaults(Path(tempfile.gettempdir()), master)
    ours = [f"--conf={key}={value}" for key, value in settings.items()]
    if "--remote" in arguments or any(word.startswith("--remote=") for word in arguments):
        ours = []  # a Connect server has its own settings
    return [str(spark_home() / "bin" / program), *ours, *arguments]


def become(program: str, arguments: tuple[str, ...]) -> None:
    """Replace this process with that program of PySpark; ClickException if it fails."""
    try:
        words = command(program, arguments)
        java = find_java()
    except SparkSetupError as err:
        raise click.ClickException(str(err)) from err
    env = {**os.environ, **environment(java, chosen_master(arguments))}
    env["SPARK_HOME"] = str(spark_home())  # another Spark's jars would not fit this PySpark
    os.execve(words[0], words, env)


@click.command(context_settings=PASS_ALL)
@ARGUMENTS
def submit(arguments: tuple[str, ...]) -> None:
    """Run spark-submit with the Java, the Python and the settings of Tuque.

    All ARGUMENTS are spark-submit's: `tuque spark submit --master spark://host:7077 job.py`.
    Your settings win. For its own help: `tuque spark submit -- --help`.
    """
    become("spark-submit", arguments)


@click.command(context_settings=PASS_ALL)
@ARGUMENTS
def shell(arguments: tuple[str, ...]) -> None:
    """Run pyspark, the Python prompt with `spark`, with the same Java and settings.

    All ARGUMENTS are pyspark's. For its own help: `tuque spark shell -- --help`.
    """
    become("pyspark", arguments)
