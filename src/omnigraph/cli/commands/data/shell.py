"""`omnigraph shell`: query a graph interactively, or run a script."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.failures import FAILURE
from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.render.output import print_error, print_line, print_note
from omnigraph.cli.settings.config import TextFormat, load_config
from omnigraph.cli.settings.servers import is_url
from omnigraph.cli.shell.dot_commands import run_statement
from omnigraph.cli.shell.session import SHOWN_ROWS, Session
from omnigraph.cli.shell.statements import Statement, split_statements
from omnigraph.cli.target import GraphOrUrlArgument, open_graph, resolve_target
from omnigraph.errors import InvalidInput, OmnigraphError


def shell(
    ctx: typer.Context,
    uri: GraphOrUrlArgument = None,
    statements: Annotated[
        list[str] | None,
        typer.Option("-c", "--command", metavar="TEXT", help="Run these statements and exit. Repeatable."),
    ] = None,
    branch: Annotated[
        str,
        typer.Option(
            "--branch",
            metavar="BRANCH",
            help="Branch to begin with.",
            show_default=True,
            autocompletion=complete_branch,
        ),
    ] = "main",
    format_: Annotated[
        TextFormat | None,
        typer.Option(
            "--format", metavar="FORMAT", help="table, json, jsonl, csv, kv or markdown; default table."
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse mutations.")] = False,
) -> None:
    """Query a graph interactively. Input that is not a terminal is a script, which ends at the first error."""
    if uri is not None and is_url(uri):
        chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
        if chosen.server is not None:
            raise InvalidInput(f"two graphs addressed: {uri} and --server {chosen.server}; pass exactly one.")
        ctx.obj, uri = replace(chosen, server=uri), None
    target = resolve_target(ctx, uri)
    is_interactive = not statements and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    with open_graph(target, "r" if read_only else "rw") as graph:
        # Reading the branch reports a wrong name, or a graph that does not exist, before the first prompt.
        graph.snapshot(branch)
        session = Session(
            graph,
            target.uri,
            is_interactive,
            branch,
            format=format_ or load_config(ctx).output,
            row_limit=SHOWN_ROWS if is_interactive else 0,
        )
        if is_interactive:
            _interact(session)
            return
        scripts = statements or [sys.stdin.read() if sys.stdin is not None else ""]
        _run_script(session, (item for script in scripts for item in split_statements(script)))


def _run_script(session: Session, statements: Iterable[Statement]) -> None:
    for statement in statements:
        try:
            run_statement(session, statement.text)
        except OmnigraphError as error:
            sys.stdout.flush()
            print_error(error)
            if statement.line > 1:
                print_note(f"in the statement on line {statement.line}")
            sys.exit(FAILURE)
        if session.is_ended:
            return


def _interact(session: Session) -> None:
    """Read statements from the terminal until the user leaves. An error ends no session."""
    from omnigraph.cli.shell.prompt import make_prompt

    print_line(f"{session.address}  (.help lists the commands, Tab completes, Ctrl-D leaves)")
    prompt = make_prompt(session)
    while not session.is_ended:
        try:
            text = prompt.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        for statement in split_statements(text):
            try:
                run_statement(session, statement.text)
            except OmnigraphError as error:
                print_error(error)
                break
            except KeyboardInterrupt:
                print_note("interrupted")
                break
