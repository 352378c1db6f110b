"""The dot commands that print a part of the graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from omnigraph.api.display.text_table import fitted_table_lines
from omnigraph.cli.render.output import print_line, print_note
from omnigraph.cli.render.terminal import terminal_width
from omnigraph.cli.shell.arguments import read_number, read_words
from omnigraph.cli.shell.session import UNLIMITED_WIDTH, Session
from omnigraph.cli.state_arguments import read_compared
from omnigraph.errors import InvalidInput

LOGGED = 20
# `HEAD` of a comparison is the head of main, and of the shell that of its branch.
_HEAD = re.compile(r"\AHEAD(?=\Z|[~^@])")
_DECLARATION = re.compile(r"^[ \t]*(?:node|edge|interface)[ \t]+(\w+)", re.MULTILINE)


def _print_table(session: Session, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with session.paged():
        for line in fitted_table_lines(columns, rows, terminal_width() or UNLIMITED_WIDTH):
            print_line(line)


def print_tables(session: Session, text: str) -> None:
    """List the types and their numbers of rows."""
    from omnigraph.protocol.result_bodies import snapshot_body

    read_words(".tables", text, 0)
    found = snapshot_body(session.graph.snapshot(session.branch, session.state), session.branch)
    rows = [[item["type_name"], item["entity_kind"], item["entity_count"]] for item in found["datasets"]]
    _print_table(session, ["type", "kind", "rows"], rows)


def print_schema(session: Session, text: str) -> None:
    """Print the schema, or the declaration of one type."""
    names = read_words(".schema [TYPE]", text, 1)
    source = session.graph.schema.source(session.branch, session.state)
    if names:
        source = _declaration(source, names[0])
    with session.paged():
        print_line(source.rstrip("\n"))


def _declaration(source: str, name: str) -> str:
    """Return the declaration of one type in the text of a schema."""
    from omnigraph.lang.suggestions import suggestion

    starts = list(_DECLARATION.finditer(source))
    ends = [match.start() for match in starts[1:]] + [len(source)]
    found = {match[1]: source[match.start() : end] for match, end in zip(starts, ends, strict=True)}
    if name not in found:
        raise InvalidInput(f"no type is called `{name}`", hint=suggestion(name, found))
    return found[name]


def print_log(session: Session, text: str) -> None:
    """Print the newest commits."""
    from omnigraph.cli.render.log_lines import log_lines

    words = read_words(".log [N]", text, 1)
    limit = read_number(".log", words[0]) if words else LOGGED
    commits = session.graph.commits(session.branch, limit, at=session.state)
    tags: dict[str, list[str]] = {}
    for tag in session.graph.tags.list():
        tags.setdefault(tag.commit_id, []).append(tag.name)
    with session.paged():
        for line in log_lines(commits, tags, draw=False, width=terminal_width()):
            print_line(line)


def print_diff(session: Session, text: str) -> None:
    """Print the changes between two states."""
    from omnigraph.cli.render.change_lines import change_lines

    words = read_words(".diff A [B]", text, 2, 1)
    before, after = (
        _HEAD.sub(lambda _: session.branch, word)
        for word in (words[0], words[1] if len(words) == 2 else session.at or session.branch)
    )
    with session.paged():
        lines = 0
        for change in session.graph.diff(
            read_compared(session.graph, before), read_compared(session.graph, after)
        ):
            for line in change_lines(change):
                lines += 1
                print_line(line.rstrip("\n"))
    if not lines:
        print_note("no changes")


def print_explain(session: Session, text: str) -> None:
    """Print the plan of a query: a text, or the name of a declared query."""
    if not text:
        raise InvalidInput("usage: .explain QUERY")
    known = session.queries.get(text)
    source, name = (known.text, known.name) if known else (text, None)
    plan = session.graph.explain(source, session.params, name=name, branch=session.branch, at=session.state)
    with session.paged():
        print_line(plan.rstrip("\n"))


def print_get(session: Session, text: str) -> None:
    """Print a node or edge."""
    from omnigraph.cli.render.row_formats import key_value_lines
    from omnigraph.errors import NotFound

    type_name, id_ = read_words(".get TYPE ID", text, 2, 2)
    found = session.graph.get(type_name, id_, branch=session.branch, at=session.state)
    if found is None:
        raise NotFound(f"no {type_name} has the id '{id_}'")
    for line in key_value_lines(found):
        print_line(line)
