"""Generates the client for threads, src/tuque/client/sync, from the client for asyncio.

`python tools/faces.py` writes it; with `--check` it only reports whether it is up to date.

It removes `async` and `await`, and replaces what CODE, NAMES and TEXTS list. In the source,
`# asyncio only` at the end of a line drops the statement that begins there, and a line
`# threads only: CODE` becomes the code.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/tuque/client/aio"
MADE = ROOT / "src/tuque/client/sync"

CODE = {
    "asyncio.sleep(": "time.sleep(",
    "Coroutine[Any, Any, T]": "T",
}
NAMES = {
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "aio": "sync",
    "asynccontextmanager": "contextmanager",
    "asyncio": "threading",
    "streams": "sockets",
}
# In docstrings and comments; the first match wins.
TEXTS = {
    ", from which `tools/faces.py` makes the one for threads": ", made by `tools/faces.py`",
    "The client for asyncio": "The client for threads",
    "client for asyncio": "client for threads",
    "on one event loop; tasks may share it": "on blocking sockets; threads may share it",
    " A cancelled task loses the reply to its call; jobs in it are delivered\n"
    "    again after RETRY, if that is not 0.": "",
    "another process, after a fork, or to another loop": "the parent process, after a fork",
    "an `aio.Client`; tasks of its loop may share it": "a `Client`; threads may share it",
    "pushed by the node; starts with its `async with` block": (
        "pushed by the node over a connection of their own"
    ),
    "as they happen, inside an": "as they happen; close it, or use it in a",
    "an `async with` block": "a `with` block",
    "`async with` block": "`with` block",
}
LEFT = re.compile(r"\b(async\w*|await\w*|aio|streams?|loops?|coroutines?)\b", re.IGNORECASE)


def left_out(source: str) -> str:
    """The source without its asyncio-only parts, and with its threads-only parts."""
    ends: dict[int, int] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            ends[node.lineno] = max(ends.get(node.lineno, 0), node.end_lineno or 0)
    kept: list[str] = []
    gone = 0  # up to this line
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        if "# asyncio only" in line:
            if number not in ends:
                raise ValueError(f"line {number}: no statement begins here: {line.strip()}")
            gone = max(gone, ends[number])
        if number > gone:
            kept.append(line.replace("# threads only: ", ""))
    return "".join(kept)


def replaced(text: str, used: set[str]) -> str:
    """The source with other names and words; adds the TEXTS that occurred to `used`."""
    for old, new in CODE.items():
        text = text.replace(old, new)
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    out: list[str] = []
    done = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        new = token.string
        if new in ("async", "await") and token.type == tokenize.NAME:
            new, end = "", end + 1  # with the blank after it
        elif token.type == tokenize.NAME:
            new = NAMES.get(new, new)
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            for words in TEXTS:
                if words in new:
                    used.add(words)
                    new = new.replace(words, TEXTS[words])
        if new != token.string:
            out += [text[done:begin], new]
            done = end
    return "".join(out) + text[done:]


def tidied(text: str, path: Path) -> str:
    """The module formatted by ruff, without unused imports."""
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    at = ["--stdin-filename", str(path), "-"]
    ours = "lint.isort.known-first-party = ['tuque']"  # even if not written yet
    check = [
        "check",
        "--fix-only",
        "--quiet",
        "--unsafe-fixes",
        "--select",
        "F401,I,UP028",
        "--config",
        ours,
    ]
    for step in (check, ["format", "--quiet"]):
        done = subprocess.run(
            [*ruff, *step, *at], input=text, cwd=ROOT, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def modules() -> dict[Path, str]:
    """The generated modules by path; ValueError if one cannot be generated."""
    used: set[str] = set()
    found: dict[Path, str] = {}
    for path in sorted(SOURCE.glob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        target = MADE / path.name
        try:
            text = replaced(left_out(path.read_text("utf-8")), used)
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from e
        text = tidied(text, target)
        for line in text.splitlines():
            if LEFT.search(line):
                raise ValueError(f"{name}: what of this, for threads? {line.strip()}")
        head = f"# Made from {name} by tools/faces.py: change that, and run make docs.\n"
        found[target] = head + text
    unused = [words for words in TEXTS if words not in used]
    if unused:
        raise ValueError(f"no source has these of TEXTS: {unused}")
    return found


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Generated modules that are out of date, missing, or without a source."""
    there = {path: path.read_text("utf-8") for path in MADE.glob("*.py")}
    return sorted(one for one in {*wanted, *there} if wanted.get(one) != there.get(one))


def main() -> int:
    """Write the modules, or with --check report those that are out of date."""
    only_check = "--check" in sys.argv[1:]
    try:
        wanted = modules()
    except ValueError as e:
        print(e)
        return 1
    found = stale(wanted)
    for path in found:
        name = path.relative_to(ROOT).as_posix()
        if only_check:
            print(f"{name}: out of date; run python tools/faces.py")
        elif path in wanted:
            path.write_text(wanted[path], "utf-8")
            print(f"{name}: written")
        else:
            path.unlink()
            print(f"{name}: removed, nothing it is made from")
    return 1 if found and only_check else 0


if __name__ == "__main__":
    sys.exit(main())
