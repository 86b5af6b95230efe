"""Limits that may only shrink: lines of modules, faces of packages, old names, markers in prose.

What does not keep the law yet is in tools/limits.toml with its figure of today. A figure that got
worse is a fault, and so is an entry that is better than it says: the file follows the code.
Knows nothing of the style of a single file: that is tools/tidy.py.
"""

from __future__ import annotations

import ast
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = ROOT / "tools" / "limits.toml"
NAMES = ROOT / "tools" / "names.txt"

FILE_LINES_MAX = 800
SUBJECT_LINES_MIN = 150  # of a module in src/
FACE_MAX = 40  # functions and classes of a package that other layers use
MARKERS_MAX = 1.0  # per 1,000 words of a page
SPEC_KB_MAX = 127  # all of spec/
DECLARED = frozenset(("core/msgs",))  # a table: its face has no limit
UNSIZED = ("__init__.py", "__main__.py")

PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`|\]\([^)]*\)", re.M | re.S)
WORD = re.compile(r"[A-Za-z][\w'-]*")
SECTION = re.compile(r"# \[(\w+)(?: in ([\w/ ]+))?\]")

HEAD = """\
# Where the code does not keep the law of STYLE.md yet, with the figure of today. Every figure may
# only shrink; `python tools/tidy.py --lower` writes those that have.
"""


@dataclass
class Facts:
    """What the limits need of one module of src/."""

    name: str  # its path in the project
    lines: int
    doc: str
    defined: dict[str, str] = field(default_factory=dict)  # at the top: `code`, or where it is from
    imported: list[tuple[str, str, str]] = field(default_factory=list)  # module, name, name here
    taken: set[tuple[str, str]] = field(default_factory=set)  # name here, attribute
    words: Counter[str] = field(default_factory=Counter)  # identifiers; `n.lives` of an attribute
    classes: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)  # constants that can be events

    @property
    def module(self) -> str:
        """Its dotted name."""
        parts = self.name.removeprefix("src/").removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def facts_of(name: str, text: str, tree: ast.Module, nodes: Iterable[ast.AST]) -> Facts:
    """The facts of a module, of which `nodes` are all nodes."""
    facts = Facts(name, len(text.splitlines()), ast.get_docstring(tree) or "")
    for node in nodes:
        read = READERS.get(type(node))
        if read is not None:
            read(facts, node)
    for top in tree.body:
        if isinstance(top, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            facts.defined[top.name] = "code"
    return facts


def read_attribute(facts: Facts, node: ast.Attribute) -> None:
    """An attribute, with the name before it."""
    facts.words[node.attr] += 1
    if isinstance(node.value, ast.Name):
        facts.taken.add((node.value.id, node.attr))
        facts.words[f"{node.value.id}.{node.attr}"] += 1


def read_import(facts: Facts, node: ast.ImportFrom) -> None:
    """Names from modules of tuque; their other names here count as identifiers."""
    for alias in node.names:
        facts.words[alias.asname or alias.name] += 1
        if node.level == 0 and node.module and node.module.split(".")[0] == "tuque":
            facts.imported.append((node.module, alias.name, alias.asname or alias.name))


def read_class(facts: Facts, node: ast.ClassDef) -> None:
    """The definition of a class."""
    facts.words[node.name] += 1
    facts.classes[node.name] += 1


def read_text(facts: Facts, node: ast.Constant) -> None:
    """A constant that has the shape of an event."""
    if isinstance(node.value, str) and node.value.isidentifier():
        facts.texts[node.value] += 1


def reads_word(field_name: str) -> Callable[[Facts, ast.AST], None]:
    """Counts the identifier that a field of the node is."""

    def read(facts: Facts, node: ast.AST) -> None:
        word = getattr(node, field_name)
        if word is not None:
            facts.words[word] += 1

    return read


READERS: dict[type[ast.AST], Callable[..., None]] = {
    ast.Attribute: read_attribute,
    ast.ImportFrom: read_import,
    ast.ClassDef: read_class,
    ast.Constant: read_text,
    ast.Name: reads_word("id"),
    ast.arg: reads_word("arg"),
    ast.keyword: reads_word("arg"),
    ast.FunctionDef: reads_word("name"),
    ast.AsyncFunctionDef: reads_word("name"),
}


# Faces


def packages_of(modules: Mapping[str, Facts]) -> dict[str, str]:
    """`core/queues` of tuque.core.queues.deliver; a layer without folders is one package."""
    layered = {name.split(".")[1] for name in modules if name.count(".") > 2}
    parts = {name: name.split(".")[1:] for name in modules}
    return {
        name: "/".join(words[: 2 if words[:1] and words[0] in layered else 1])
        for name, words in parts.items()
    }


def origin(module: str, name: str, modules: Mapping[str, Facts]) -> tuple[str, str] | None:
    """Where the function or class of that name is defined; None of a constant."""
    for _ in range(8):  # a name is not handed on more often
        facts = modules.get(module)
        if facts is None:
            return None
        if name in facts.defined:
            return module, name
        source = next((one for one in facts.imported if one[2] == name), None)
        if source is None:
            return None
        module, name = source[:2]
    return None


def faces(every: Iterable[Facts]) -> dict[str, set[tuple[str, str]]]:
    """The functions and classes of each package that other layers of tuque use."""
    modules = {one.module: one for one in every}
    packages = packages_of(modules)
    found: dict[str, set[tuple[str, str]]] = {}
    for facts in modules.values():
        own = facts.module.split(".")[1:2]
        for module, name, here in facts.imported:
            whole = f"{module}.{name}"
            if (whole if whole in modules else module).split(".")[1:2] == own:
                continue
            if whole in modules:  # a module: what is taken through it
                used = {(whole, word) for base, word in facts.taken if base == here}
            else:
                used = {(module, name)}
            for one in used:
                code = origin(*one, modules)
                if code is not None and packages.get(one[0]):
                    found.setdefault(packages[one[0]], set()).add(code)
    return found


# Old names and markers


@dataclass(frozen=True)
class Old:
    """An old name and where it counts."""

    section: str  # module, class, name, log, prose or marker
    folders: tuple[str, ...]
    name: str

    @property
    def heading(self) -> str:
        """Its section, as in tools/names.txt."""
        return f"{self.section} in {' '.join(self.folders)}" if self.folders else self.section


def old_names(text: str) -> list[Old]:
    """The rows of tools/names.txt."""
    found: list[Old] = []
    section, folders = "", ()
    for line in text.splitlines():
        heading = SECTION.match(line)
        if heading is not None:
            section, folders = heading[1], tuple((heading[2] or "").split())
        elif line.strip() and not line.startswith("#"):
            found.append(Old(section, folders, line.partition("\t")[0]))
    return found


def is_in(name: str, folders: tuple[str, ...]) -> bool:
    """Whether a module of that path is in one of the folders of src/tuque."""
    return not folders or name.startswith(tuple(f"src/tuque/{one}/" for one in folders))


def has_word(identifier: str, old: str) -> bool:
    """Whether an identifier is the old name, or has it as whole words."""
    if "." in old or "." in identifier:
        return identifier == old
    if identifier.isupper() and not old.isupper():
        identifier = identifier.lower()
    return f"_{old}_" in f"_{identifier.strip('_')}_"


def phrase(old: str) -> re.Pattern[str]:
    """Finds a phrase of prose; what stands in brackets only explains it."""
    words = re.sub(r" \(.*\)", "", old).split()
    first = f"[{words[0][0].upper()}{words[0][0]}]{re.escape(words[0][1:])}"
    rest = (r"[\w-]+" if word == "..." else re.escape(word) for word in words[1:])
    return re.compile(r"(?<![\w-])" + r"\s+".join((first, *rest)) + r"(?![\w-])")


def prose_of(text: str) -> str:
    """A page without its code and addresses."""
    return CODE.sub(" ", text)


def counts_of_names(
    olds: Iterable[Old], every: Iterable[Facts], pages: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    """How often each old name is found still: heading -> name -> times."""
    every = list(every)
    texts = [prose_of(text) for name, text in pages.items() if not name.startswith("spec/")]
    prose = "\n\n".join((*texts, *(prose_of(one.doc) for one in every)))
    sums: dict[tuple[str, tuple[str, ...]], Counter[str]] = {}
    paths = {one.name for one in every}
    counts: dict[str, dict[str, int]] = {}
    for old in olds:
        kind = {"name": "words", "class": "classes", "log": "texts"}.get(old.section)
        if old.section == "module":
            times = int(f"src/tuque/{old.name}.py" in paths)
        elif old.section == "prose":
            times = len(phrase(old.name).findall(prose))
        elif kind is not None:
            at = (kind, old.folders)
            if at not in sums:
                sums[at] = Counter()
                for one in every:
                    if is_in(one.name, old.folders):
                        sums[at].update(getattr(one, kind))
            times = times_of(old, sums[at])
        else:
            continue
        if times:
            counts.setdefault(old.heading, {})[old.name] = times
    return counts


def times_of(old: Old, found: Counter[str]) -> int:
    """How often it is among the names found."""
    if old.section != "name":
        return found[old.name]
    word = old.name.lower()
    return sum(n for one, n in found.items() if word in one.lower() and has_word(one, old.name))


def rate_of_markers(markers: Iterable[re.Pattern[str]], text: str) -> float:
    """Markers per 1,000 words of a page, rounded up to the next half: a word more is no fault."""
    prose = prose_of(text)
    words = len(WORD.findall(prose))
    found = sum(len(one.findall(prose)) for one in markers)
    return math.ceil(2000 * found / max(words, 1)) / 2


# Today against the list


def measure(every: Iterable[Facts], pages: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """What does not keep the law: section of tools/limits.toml -> key -> figure."""
    every = list(every)
    olds = old_names(NAMES.read_text("utf-8"))
    markers = [phrase(one.name) for one in olds if one.section == "marker"]
    sized = {one.name: one.lines for one in every if not one.name.endswith(UNSIZED)}
    rates = {name: rate_of_markers(markers, text) for name, text in pages.items()}
    handed = {package: len(codes) for package, codes in faces(every).items()}
    found: dict[str, dict[str, float]] = {
        "long": {name: n for name, n in sized.items() if n > FILE_LINES_MAX},
        "short": {name: n for name, n in sized.items() if n < SUBJECT_LINES_MIN},
        "faces": {name: n for name, n in handed.items() if n > FACE_MAX and name not in DECLARED},
        "markers": {name: rate for name, rate in rates.items() if rate > MARKERS_MAX},
    }
    books = sum(len(text.encode()) for name, text in pages.items() if name.startswith("spec/"))
    if books > 1000 * SPEC_KB_MAX:
        found["spec"] = {"spec/": math.ceil(books / 1000)}
    for heading, names in counts_of_names(olds, every, pages).items():
        found[heading] = dict(names)
    return found


LAW = {
    "long": f"lines, at most {FILE_LINES_MAX}",
    "short": f"lines, at least {SUBJECT_LINES_MIN}: join it with its subject",
    "faces": f"functions and classes for other layers, at most {FACE_MAX}",
    "markers": f"markers per 1,000 words, at most {MARKERS_MAX:g}",
    "spec": f"KB of rules, at most {SPEC_KB_MAX}",
}


def compare(
    now: Mapping[str, Mapping[str, float]], most: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """Faults: what is worse than the list says, and what is better."""
    faults: list[str] = []
    for section in sorted({*now, *most}):
        found, listed = now.get(section, {}), most.get(section, {})
        law = LAW.get(section, f"times; an old name [{section}], tools/names.txt has the new one")
        for key in sorted({*found, *listed}):
            is_figure, figure, limit = key in found, found.get(key, 0), listed.get(key)
            if limit is None:
                faults.append(f"{key}: {figure:g} {law}")
            elif not is_figure:
                faults.append(f"tools/limits.toml: {key} keeps the law: take it out of [{section}]")
            elif section == "short":
                continue  # a line less in it is no fault
            elif figure > limit:
                faults.append(f"{key}: {figure:g} {law}; it may stay at {limit:g}")
            elif figure < limit:
                faults.append(f"tools/limits.toml: write {key} = {figure:g} in [{section}]")
    return faults


def listed() -> dict[str, dict[str, float]]:
    """The figures of tools/limits.toml."""
    return tomllib.loads(LIMITS.read_text("utf-8"))


def lowered(
    now: Mapping[str, Mapping[str, float]], most: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """The list with the figures that are lower now, without what keeps the law; nothing new."""
    return {
        section: {
            key: now[section][key] if section == "short" else min(limit, now[section][key])
            for key, limit in keys.items()
            if key in now.get(section, {})
        }
        for section, keys in most.items()
    }


def as_toml(limits: Mapping[str, Mapping[str, float]]) -> str:
    """The text of tools/limits.toml."""
    out = [HEAD]
    for section in sorted(limits):
        if limits[section]:
            out.append(f"[{quoted(section)}]")
            out += [f"{quoted(key)} = {n:g}" for key, n in sorted(limits[section].items())]
            out.append("")
    return "\n".join(out)


def quoted(key: str) -> str:
    """A key of TOML."""
    return key if re.fullmatch(r"[\w-]+", key) else f'"{key}"'


def figures(every: Iterable[Facts]) -> list[str]:
    """The figures of the house, a line each."""
    every = list(every)
    modules = [one for one in every if not one.name.endswith("__init__.py")]
    handed = faces(every)
    core = set[tuple[str, str]]().union(*(handed[one] for one in handed if one.startswith("core")))
    widest = sorted(
        ((len(codes), name) for name, codes in handed.items() if name not in DECLARED), reverse=True
    )
    largest = max(modules, key=lambda one: one.lines)
    rows = [
        ("modules in src, without __init__", len(modules)),
        ("lines in src", sum(one.lines for one in every)),
        ("packages in src", len(every) - len(modules)),
        ("functions and classes from core to other layers", len(core)),
        ("largest module", f"{largest.lines} {largest.name}"),
        ("widest faces", ", ".join(f"{name} {n}" for n, name in widest[:6])),
    ]
    return [f"{label}: {value}" for label, value in rows]
