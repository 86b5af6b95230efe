"""Generates docs/commands.md, docs/configuration.md and parts of other files from tables.

`python tools/docs.py` writes them; with `--check` it only reports whether they are up to date.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "tuque"
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

from log_events import lines_of, table  # noqa: E402  as above

from tuque.core.model.task import DONE, STATUS_NAMES, TRANSITIONS  # noqa: E402  as above
from tuque.server.config.kinds import (  # noqa: E402  the path is set above
    Memory,
    Opt,
    memory_text,
)
from tuque.server.config.options import OPTIONS  # noqa: E402  the path is set above
from tuque.tubes.model.tube import ARROWS, STATE_NAMES  # noqa: E402  the path is set above
from tuque.wire.commands.bound import WHOLE, Bound  # noqa: E402  the path is set above
from tuque.wire.commands.commands import CATEGORIES, UNITS  # noqa: E402  the path is set above
from tuque.wire.commands.details import (  # noqa: E402  the path is set above
    ALL_DETAILS,
    ARGUMENTS,
    ERROR_WORDS,
    PROTOCOL_ERRORS,
)
from tuque.wire.commands.rows import (  # noqa: E402  the path is set above
    BOUNDS,
    COMMAND_ROWS,
    MEMORY,
)
from tuque.wire.commands.tube_table import PROCEDURES, Procedure  # noqa: E402  path set above

MADE = "<!-- made by tools/docs.py; change the source named below and run it again -->"
GROUPS = {
    "jobs": "Jobs",
    "queues": "Queues",
    "connection": "Connection",
    "server": "Server and cluster",
}


def commands_md() -> str:
    """The reference of commands, by group."""
    out = [
        "# Commands",
        "",
        MADE,
        "",
        "Source: `src/tuque/wire/commands/rows.py`. Names and options are read in any case.",
        "The numbered rules are those of single commands, from `details.py` in the same folder;",
        "all others are in `spec/`. *write* commands change jobs and are refused while the journal",
        "can't be written; *denyoom* ones are refused when memory is full; *loading* ones are",
        "answered while the journal is read at start. Each row has the part of `maxmemory` up to",
        "which the command is taken, and why.",
        "",
        "Every command has a bound (SPEC L2): how many words it takes, how many units of work it",
        "does in one turn of the server, how long its reply is, and what becomes of more. A unit",
        "is one job, queue, tube, client or word; the row says what it counts, and each call",
        "costs at least so many. A reply may be longer by one element.",
    ]
    for group, title in GROUPS.items():
        out += ["", f"## {title}"]
        for row in COMMAND_ROWS:
            name, arity, flags, of_group = row.name, row.arity, row.flags, row.group
            syntax, summary = row.syntax, row.summary
            if of_group != group:
                continue
            ways = [syntax] if syntax.startswith("[") else syntax.split(" | ")
            lines = [f"{name} {way}".strip() for way in ways]
            out += ["", f"### {name}", "", "```", *lines, "```", "", summary]
            out += ["", f"Arity {arity}; flags: {', '.join(flags.split())}."]
            out += ["", *bound_lines(name)]
            if name == "TUBE":
                out += ["", *procedure_lines()]
            out += detail_lines(name)
    out += ["", "## Error words", "", *ERROR_WORDS.strip("\n").splitlines()]
    out += ["", "## Arguments and replies", "", *ARGUMENTS.strip("\n").splitlines()]
    out += ["", "## Protocol errors", "", "After `-ERR Protocol error: ` (SPEC C2.4):", ""]
    out += PROTOCOL_ERRORS.strip("\n").splitlines()
    return "\n".join(out) + "\n"


def commands_txt() -> str:
    """The commands for the prompt: name, group, syntax and summary of each."""
    rows = [(row.name, row.group, row.syntax, row.summary) for row in COMMAND_ROWS]
    return "".join("\t".join(row) + "\n" for row in rows)


def detail_lines(name: str) -> list[str]:
    """The rules of a command, and of its subcommands."""
    out: list[str] = []
    for key, text in ALL_DETAILS:
        command, _, subcommand = key.decode().partition(" ")
        if command == name:
            out += ["", *([f"#### {command} {subcommand}", ""] if subcommand else [])]
            out += text.strip("\n").splitlines()
    return out


def procedure_lines() -> list[str]:
    """The effect and reply of each tube procedure, and its calls over IPROTO."""
    out = ["| Subcommand | Does | Reply | Over IPROTO |", "|---|---|---|---|"]
    for one in PROCEDURES:
        silent = "" if one.is_told or not one.calls else "; nothing over IPROTO"
        cells = [one.word, one.doc, one.reply + silent, in_iproto(one)]
        out.append("| " + " | ".join(cells) + " |")
    return out


def in_iproto(one: Procedure) -> str:
    """The calls of a procedure; methods are those of `queue.tube.<tube>:`."""
    calls = one.call_syntax.replace(") ", ")` `")
    return f"`{calls}`" if calls else ""


def bound_lines(name: str) -> list[str]:
    """The bounds of a command, or of its subcommands."""
    rows = [(key, one) for key, one in BOUNDS.items() if key.startswith(f"{name} ")]
    rows += [(name, BOUNDS[name])] if name in BOUNDS else []
    if len(rows) == 1:
        words, work, reply = shown(rows[0][1])
        words = f"{words} words, " if rows[0][1].words else ""
        told = f"Bound: {words}{work} units a turn, a reply of {reply}. {rows[0][1].beyond}."
        return [told, f"Cost: {cost_of(rows[0][1])}. When memory is short: {MEMORY[name]}."]
    out = [
        "| Subcommand | Words | Units a turn | Reply | More | Cost | When memory is short |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, one in rows:
        label = key.removeprefix(name).strip() or "others"
        memory = MEMORY.get(key, MEMORY[name])
        out.append("| " + " | ".join([label, *shown(one), one.beyond, cost_of(one), memory]) + " |")
    return out


def cost_of(one: Bound) -> str:
    """What a unit is, and how many a call costs at the least."""
    return f"{one.counts}; at least {one.least}"


def shown(one: Bound) -> tuple[str, str, str]:
    """Words, work and reply of a bound, in prose."""
    words = f"{one.words:,}" if one.words else ""
    work = "no bound" if one.work == WHOLE else f"{one.work:,}"
    reply = memory_text(int(one.reply)) if one.reply % 1024 == 0 else f"{one.reply:,} bytes"
    return words, work, reply + (" and a body" if one.has_body else "")


def configuration_md() -> str:
    """The reference of options, in the order of CONFIG GET."""
    out = [
        "# Configuration",
        "",
        MADE,
        "",
        "Source: `src/tuque/server/config/options.py`. A value is taken from the command line,",
        "else the environment (`TUQUE__NAME`), else the file (TOML, or a `disque.conf`), else the",
        "default. `tuque server --print-config` shows each value and where it came from,",
        "`tuque server --check-config` reads everything, also the files of secrets, users and "
        "certificates, and stops.",
        "",
        "In TOML and in the environment names have `_` where they have `-` here. *CONFIG SET*",
        "marks what can be changed while the server runs. An option spelt with one underscore",
        "after `TUQUE` is refused; any other `TUQUE_` variable that is not known gives a warning.",
        "",
        "| Option | Default | Allowed | Unit | CONFIG SET | Meaning |",
        "|---|---|---|---|---|---|",
    ]
    out += [option_row(opt) for opt in OPTIONS.values() if not opt.obsolete]
    out += [
        "",
        "## Read, and without effect",
        "",
        "Disque has these. They are read so that its files work; setting one is noted.",
        "",
        "| Option | Why it does nothing |",
        "|---|---|",
    ]
    out += [f"| `{o.name}` | {cell(o.obsolete)} |" for o in OPTIONS.values() if o.obsolete]
    return "\n".join(out) + "\n"


def option_row(opt: Opt) -> str:
    """One line of the table."""
    is_size = isinstance(opt.kind, Memory)
    default = opt.kind.conf_words(opt.default)[0] if is_size else opt.kind.show(opt.default)
    default = default or '""'
    allowed = cell(opt.kind.allowed)
    runtime = "yes" if opt.runtime else ""
    cells = [f"`{opt.name}`", f"`{default}`", allowed, opt.unit, runtime, cell(opt.help)]
    return "| " + " | ".join(cells) + " |"


def cell(text: str) -> str:
    """Escape text for a table cell."""
    return text.replace("|", "\\|")


def state_diagram() -> str:
    """The states of a task as a diagram (Mermaid) and a table, from the table of transitions."""
    names = {0: "[*]", DONE: "[*]"}
    rows = [(old, why.decode(), new) for old, why, new in TRANSITIONS]
    out = ["", "```mermaid", "stateDiagram-v2"]
    for old, why, new in rows:
        ends = [names.get(one) or STATUS_NAMES[one].decode() for one in (old, new)]
        out.append(f"    {ends[0]} --> {ends[1]}: {why}")
    out += ["```", "", "| from | by | to |", "|---|---|---|"]
    for old, why, new in rows:
        cells = [f"{STATUS_NAMES[one].decode()} `{chr(one)}`" if one else "" for one in (old, new)]
        out.append(f"| {cells[0]} | {why} | {'gone' if new == DONE else cells[1]} |")
    return "\n".join([*out, "", ""])


HOME_STATES = {
    b"INIT": "unknown whether this node is the leader; it was not since its start",
    b"STARTUP": "it becomes the leader: it writes the epoch to disk and loads the tasks",
    b"RUNNING": "it is the leader: all commands work",
    b"ENDING": "it hands over the leadership: pending changes are replicated",
    b"WAITING": "another node is the leader, or this one may not lead now",
}


def home_diagram() -> str:
    """The same for the states of a tube on a node."""
    out = ["", "```mermaid", "stateDiagram-v2", "    [*] --> INIT"]
    for old, why, new in ARROWS:
        out.append(
            f"    {STATE_NAMES[old].decode()} --> {STATE_NAMES[new].decode()}: {why.decode()}"
        )
    out += ["```", "", "| state | means |", "|---|---|"]
    out += [f"| {name.decode()} | {HOME_STATES[name]} |" for name in STATE_NAMES]
    return "\n".join([*out, "", ""])


def between(text: str, name: str, made: str) -> str:
    """The page with a new text between the two marks of that name."""
    begin = text.index("-->", text.index(f"<!-- {name}: made")) + 3
    end = text.index(f"<!-- {name} end -->")
    return text[:begin] + "\n" + made + text[end:]


def tubes_md() -> str:
    """The page of tubes with the states of tasks and of leaders regenerated."""
    text = (ROOT / "docs/tubes.md").read_text("utf-8")
    text = between(text, "states", state_diagram())
    return between(text, "homes", home_diagram())


def users_md() -> str:
    """The page of users with the table of categories regenerated."""
    text = (ROOT / "docs/users.md").read_text("utf-8")
    return between(text, "categories", categories_table())


def categories_table() -> str:
    """Each category: what it is for, and its units."""
    lines = ["| Category | For | Commands |", "|---|---|---|"]
    for name, doc in CATEGORIES.items():
        units = [f"`{unit.name}`" for unit in UNITS if name in unit.categories]
        lines.append(f"| `@{name}` | {doc} | {' '.join(units).replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


# the Python call, and Tarantool's where its queue module has none
IN_PYTHON = {
    "CREATE": "`client.tube(name).create(type, if_not_exists=, temporary=, ttl=, ttr=, pri=, "
    "capacity=, on_change=, sync=, failover=)`",
    "PUT": "`tube.put(data, pri=, ttl=, ttr=, delay=, utube=, wait=)`",
    "TAKE": "`tube.take()`, `tube.take(timeout)`",
    "ACK": "`tube.ack(task)`",
    "RELEASE": "`tube.release(task, delay=)`",
    "TOUCH": "`tube.touch(task, increment)`",
    "BURY": "`tube.bury(task)`",
    "KICK": "`tube.kick(count)`",
    "PEEK": "`tube.peek(id)`",
    "DELETE": "`tube.delete(id)`",
    "TASKS": "`tube.tasks_by_state(state, count=)`",
    "TRUNCATE": "`tube.truncate()`",
    "RELEASEALL": "`tube.release_all()`",
    "DROP": "`tube.drop()`",
    "INFO": "`tube.info()`",
    "LIST": "`client.tube_list()`",
    "STATISTICS": "`tube.statistics()`, `client.tube_statistics()`",
    "STATE": "`client.tube_state()`, `tube.state()`",
    "HOME": "`tube.home()`, `tube.move(node)`, `tube.take_over(node)`",
    "CFG": "`client.tube_cfg(ttr=, in_replicaset=)`",
    "IDENTIFY": "`client.tube_identify(uuid)`",
    "CHANGES": "`tube.changes()`, `tube.watch()`",
    "SUBSCRIBE": "`tube.subscribe()`",
    "GRANT": "`tube.grant(user, role=, call=, truncate=, prefix=)`",
    "REVOKE": "`tube.revoke(user, ...)`",
    "GRANTS": "`tube.grants()`",
    "DRIVERS": "`client.tube_drivers()`",
    "REGISTERDRIVER": "a Python class of an installed package, [tube-drivers.md](tube-drivers.md)",
    "grant_role": "`tube.grant(role, role=True, ...)`",
    "on_task_change": "`create(on_change=)`",
}
IN_TARANTOOL = {
    "HOME": "`box.cfg{read_only=}`",
    "REVOKE": "`box.schema.user.revoke`",
    "CHANGES": "`on_task_change(function)`",
    "SUBSCRIBE": "`on_task_change(function)`",
}
IN_RESP = {"grant_role": "`TUBE GRANT tube role ROLE ...`", "on_task_change": "`ONCHANGE`"}


def calls_table() -> str:
    """Each procedure of a tube in Tarantool, RESP and Python."""
    out = ["", "| Tarantool | RESP | Python |", "|---|---|---|"]
    for one in PROCEDURES:
        resp = f"`TUBE {one.syntax}`" if one.word else IN_RESP[one.name]
        calls = in_iproto(one) or IN_TARANTOOL.get(one.name, "")
        out.append("| " + " | ".join(map(cell, [calls, resp, IN_PYTHON.get(one.name, "")])) + " |")
    return "\n".join([*out, "", ""])


def from_tarantool_md() -> str:
    """The page with the table of calls regenerated."""
    text = (ROOT / "docs/from-tarantool-queue.md").read_text("utf-8")
    return between(text, "calls", calls_table())


TOPS = ("core", "tubes", "cluster", "store", "wire", "server")
USERS = ("client", "worker", "clusterview", "cli", "web", "spark", "testing")


def packages() -> list[str]:
    """All packages as paths, each after those it may import (pyproject.toml has the order)."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    order = {one["containers"][0]: one for one in contracts["contracts"] if "containers" in one}
    found = []
    for top in (*TOPS, *USERS):
        found.append(top)
        rows = order[f"tuque.{top}"]["layers"] if f"tuque.{top}" in order else []
        inner = [name.strip() for row in reversed(rows) for name in row.split("|")]
        inner += sorted(path.parent.name for path in (SRC / top).glob("*/__init__.py"))
        found += [f"{top}/{name}" for name in dict.fromkeys(inner) if (SRC / top / name).is_dir()]
    return found


def packages_md() -> str:
    """What each package holds and must not know, from its docstring."""
    out = [
        "# Packages",
        "",
        MADE,
        "",
        "Source: the docstring of each package. In each list a package imports only those above",
        "it; `pyproject.toml` has the lists, import-linter checks them.",
        "[ARCHITECTURE.md](../ARCHITECTURE.md) is the overview.",
        "",
        "| Package | Holds | Must not know |",
        "|---|---|---|",
    ]
    for name in packages():
        tree = ast.parse((SRC / name / "__init__.py").read_text("utf-8"))
        parts = (ast.get_docstring(tree) or "").split("\n\n")
        unknown = [one for one in parts if one.startswith("Must not know: ")]
        cells = [cell(" ".join(one.split())) for one in (parts[0], *unknown)]
        rest = cells[1].removeprefix("Must not know: ").rstrip(".") if unknown else ""
        out.append(f"| `{name}/` | {cells[0]} | {rest} |")
    return "\n".join(out) + "\n"


def logs_md() -> str:
    """The events of the logs."""
    out = [
        "# Logs",
        "",
        MADE,
        "",
        "Source: the log calls in `src/tuque/server` and `src/tuque/worker`.",
        "",
        "Server and worker log lines for people; with `log-format json` of the server, or",
        "`--log json` of the worker, each line is one object for programs that collect logs:",
        "",
        "```",
        '{"time": "2026-11-23T07:00:12.345678+00:00", "level": "info", "process": 4711,',
        ' "logger": "tuque.server", "event": "bus_linked",',
        ' "message": "bus: linked with 1f0e2d3c at 10.0.0.2:17711",',
        ' "peer": "1f0e2d3c", "address": "10.0.0.2:17711"}',
        "```",
        "",
        "The name of an event stays the same when its text changes: search for the name, not the",
        "text. A name in angle brackets in a text is a field of the object. In the log of a",
        "worker lines about a job also have its `job`, `task`, `queue` and `attempt`, and `tenant`",
        "if it has that header. Tracebacks are in `trace`. Lines of the client library and of",
        "tasks have no event. `CONFIG SET` changes `log-format` and `loglevel` of a server that",
        "runs. Lines that repeat appear once a minute; `lines_left_out` counts the rest.",
    ]
    for title, program in (("Server", "server"), ("Worker", "worker")):
        out += ["", f"## {title}", "", *table(lines_of(SRC, program))]
    return "\n".join(out) + "\n"


PAGES = {
    "docs/commands.md": commands_md,
    "docs/configuration.md": configuration_md,
    "docs/logs.md": logs_md,
    "docs/from-tarantool-queue.md": from_tarantool_md,
    "docs/packages.md": packages_md,
    "docs/tubes.md": tubes_md,
    "docs/users.md": users_md,
    "src/tuque/cli/commands.txt": commands_txt,
}


def main() -> int:
    """Write the pages, or with --check report those that are out of date."""
    only_check = "--check" in sys.argv[1:]
    stale = 0
    for name, make in PAGES.items():
        path = ROOT / name
        text = make()
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        if only_check:
            print(f"{name}: out of date; run python tools/docs.py")
            stale += 1
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"{name}: written")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
