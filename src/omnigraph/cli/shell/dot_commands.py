"""The dot commands of the shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from omnigraph.cli.render.output import count, print_line, print_note
from omnigraph.cli.shell.arguments import read_json_object, read_number, read_words
from omnigraph.cli.shell.inspection import (
    LOGGED,
    print_diff,
    print_explain,
    print_get,
    print_log,
    print_schema,
    print_tables,
)
from omnigraph.cli.shell.session import FORMATS, Session, ShellQuery
from omnigraph.cli.state_arguments import read_moment
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.cli.settings.config import TextFormat


@dataclass(frozen=True)
class DotCommand:
    """A command: its arguments for `.help`, what it does, and the function. `takes` names what completes it."""

    arguments: str
    summary: str
    run: Callable[[Session, str], None]
    takes: str = ""


def run_command(session: Session, line: str) -> None:
    """Run a line that starts with a dot. Raises `InvalidInput` for an unknown command."""
    name, _, rest = line[1:].strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        from omnigraph.lang.suggestions import suggestion

        hint = suggestion(f".{name}", [f".{known}" for known in COMMANDS])
        raise InvalidInput(f"unknown command .{name}", hint=hint or ".help lists the commands")
    command.run(session, rest.strip().removesuffix(";").rstrip())


def _branch(session: Session, text: str) -> None:
    words = read_words(".branch [NAME | create NAME]", text, 2)
    if not words:
        for name in session.graph.branches.list():
            print_line(f"{'*' if name == session.branch and session.at is None else ' '} {name}")
        return
    if len(words) == 2:
        if words[0] != "create":
            raise InvalidInput("usage: .branch [NAME | create NAME]")
        session.graph.branches.create(words[1], session.branch, at=session.state)
    elif words[0] not in session.graph.branches.list(prefix=words[0]):
        from omnigraph.lang.suggestions import suggestion

        known = session.graph.branches.list(limit=1_000)
        hint = suggestion(words[0], known) or f".branch create {words[0]} creates it"
        raise InvalidInput(f"no branch is called '{words[0]}'", hint=hint)
    session.branch, session.at = words[-1], None


def _at(session: Session, text: str) -> None:
    words = read_words(".at [STATE | now]", text, 1)
    if words == ["now"]:
        session.at = None
    elif words:
        # Reading it reports an unknown name.
        session.graph.snapshot(session.branch, read_moment(words[0]))
        session.at = words[0]
    print_line(f"branch {session.branch}" if session.at is None else f"state {session.at}")


def _timer(session: Session, text: str) -> None:
    words = read_words(".timer [on | off]", text, 1)
    if words and words[0] not in ("on", "off"):
        raise InvalidInput("usage: .timer on|off")
    session.has_timer = words[0] == "on" if words else not session.has_timer
    print_line(f"timer {'on' if session.has_timer else 'off'}")


def _format(session: Session, text: str) -> None:
    words = read_words(".format [FORMAT]", text, 1)
    if words and words[0] not in FORMATS:
        raise InvalidInput(f"unknown format '{words[0]}'; the formats are {', '.join(FORMATS)}")
    if words:
        session.format = cast("TextFormat", words[0])
    print_line(f"format {session.format}")


def _limit(session: Session, text: str) -> None:
    words = read_words(".limit [N | all]", text, 1)
    if words:
        session.row_limit = 0 if words[0] == "all" else read_number(".limit", words[0])
    print_line(f"limit {session.row_limit or 'all'}")


def _export(session: Session, text: str) -> None:
    from omnigraph.cli.render.row_formats import format_of_path, write_result

    path = read_words(".export FILE", text, 1, 1)[0]
    if session.last is None:
        raise InvalidInput("there is no result to export", hint="run a query first")
    write_result(session.last, format_of_path(path), path)
    print_line(f"exported {count(len(session.last), 'row')} to {path}")


def _params(session: Session, text: str) -> None:
    if text == "clear":
        session.params = {}
    elif text:
        session.params = {**session.params, **read_json_object(text)}
    print_line(json.dumps(session.params, ensure_ascii=False))


def _queries(session: Session, text: str) -> None:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.lang.gq.query_parser import parse_queries
    from omnigraph.lang.source import Source

    words = read_words(".queries [FILE]", text, 1)
    if words:
        source = _read_file(words[0])
        found = session.declare(source, parse_queries(Source(source, words[0])).queries)
        print_note(f"{count(len(found), 'query')} from {words[0]}")
    for query in session.queries.values():
        print_line(query.usage)
    if isinstance(session.graph, RemoteGraph):
        for entry in session.graph.queries():
            members = ", ".join(f'"{param.name}": …' for param in entry.params)
            print_line(f".run {entry.name}" + (f" {{{members}}}" if members else "") + "  (stored)")


def _run(session: Session, text: str) -> None:
    from omnigraph.api.results.receipts import Receipt
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.lang.suggestions import suggestion

    name, _, rest = text.partition(" ")
    params = {**session.params, **(read_json_object(rest) if rest.strip() else {})}
    known: ShellQuery | None = session.queries.get(name)
    if known is not None:
        session.run(known, params)
        return
    if not isinstance(session.graph, RemoteGraph):
        hint = suggestion(name, session.queries) or ".queries FILE.gq reads queries"
        raise InvalidInput(f"no query is called '{name}'", hint=hint)
    entry = next((entry for entry in session.graph.queries() if entry.name == name), None)
    if entry is not None and entry.mutation:
        session.refuse_write()
    with session.timed():
        found = session.graph.invoke(name, params, branch=session.branch, at=session.state)
    if isinstance(found, Receipt):
        session.show_receipt(found)
    else:
        session.show_result(found)


def _read(session: Session, text: str) -> None:
    from omnigraph.cli.shell.statements import split_statements

    for statement in split_statements(_read_file(read_words(".read FILE", text, 1, 1)[0])):
        run_statement(session, statement.text)


def run_statement(session: Session, text: str) -> None:
    """Run a dot command or a query."""
    if text.startswith("."):
        run_command(session, text)
    else:
        session.run_query(text.rstrip().removesuffix(";"))


def _help(session: Session, text: str) -> None:
    names = [name.removeprefix(".") for name in read_words(".help [COMMAND]", text, 1)] or list(COMMANDS)
    unknown = [name for name in names if name not in COMMANDS]
    if unknown:
        raise InvalidInput(f"unknown command .{unknown[0]}", hint=".help lists the commands")
    lines = [(f".{name} {COMMANDS[name].arguments}".rstrip(), COMMANDS[name].summary) for name in names]
    width = max(len(usage) for usage, _ in lines)
    with session.paged():
        for usage, summary in lines:
            print_line(f"{usage:<{width}}  {summary}")
        if not text:
            print_line("\nEverything else is a query: match { $p: Person } return { $p.* } limit 10")
            print_line(
                "A query ends with Enter when it is complete; Alt-Enter starts a new line. Tab completes."
            )


def _quit(session: Session, text: str) -> None:
    read_words(".quit", text, 0)
    session.is_ended = True


def _read_file(path: str) -> str:
    from omnigraph.cli.source_files import read_source

    return read_source(str(Path(path).expanduser()))


COMMANDS: dict[str, DotCommand] = {
    "tables": DotCommand("", "List the types and their numbers of rows.", print_tables),
    "schema": DotCommand(
        "[TYPE]", "Print the schema, or the declaration of one type.", print_schema, "types"
    ),
    "branch": DotCommand("[NAME | create NAME]", "List the branches, or switch to one.", _branch, "branches"),
    "at": DotCommand(
        "[STATE | now]", "Read an earlier state: a commit, a tag, HEAD~2, main@{TIME}.", _at, "states"
    ),
    "log": DotCommand("[N]", f"Print the newest commits of the branch; default {LOGGED}.", print_log),
    "diff": DotCommand(
        "A [B]", "Print the changes from state A to B; default: to the current state.", print_diff, "states"
    ),
    "get": DotCommand("TYPE ID", "Print a node or edge with all its properties.", print_get, "types"),
    "explain": DotCommand("QUERY", "Print the plan of a query without running it.", print_explain, "queries"),
    "queries": DotCommand(
        "[FILE]", "List the queries that .run knows; read them from a .gq file.", _queries, "files"
    ),
    "run": DotCommand("NAME [JSON]", "Run a declared or stored query with parameters.", _run, "queries"),
    "params": DotCommand("[JSON | clear]", "Show or set parameters of later queries.", _params),
    "format": DotCommand("[FORMAT]", f"Set the format of results: {', '.join(FORMATS)}.", _format, "formats"),
    "limit": DotCommand("[N | all]", "Set how many rows of a result are printed.", _limit),
    "timer": DotCommand("[on | off]", "Print how long each query takes.", _timer, "switch"),
    "export": DotCommand(
        "FILE", "Write all rows of the last result: .csv .json .jsonl .md .parquet .arrow.", _export, "files"
    ),
    "read": DotCommand("FILE", "Run the statements of a file.", _read, "files"),
    "help": DotCommand("[COMMAND]", "List the commands.", _help, "commands"),
    "quit": DotCommand("", "Leave the shell; also Ctrl-D.", _quit),
}
COMMANDS["exit"] = COMMANDS["quit"]
