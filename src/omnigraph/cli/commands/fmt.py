"""`omnigraph fmt`: sources in their one layout."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from omnigraph.cli.render.output import complain, count, say, say_diff, say_exactly
from omnigraph.cli.shell import FAILURE
from omnigraph.cli.source_files import (
    STDIN,
    STDIN_NAME,
    find_sources,
    read_source,
    replace_source,
    source_name,
)
from omnigraph.errors import InvalidInput, OmnigraphError

Language: TypeAlias = Literal["pg", "gq"]

SUFFIXES: dict[str, Language] = {".pg": "pg", ".gq": "gq"}


def fmt(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|DIR", help="Files, or directories of .pg and .gq files; - is stdin."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail and name the files that would change.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; show what would change.")] = False,
    stdin: Annotated[
        Language | None,
        typer.Option("--stdin", metavar="pg|gq", help="Format stdin, in this language, to stdout."),
    ] = None,
) -> None:
    """Rewrite schemas and queries in their one layout.

    Files that have it already are not touched. The meaning of a source never changes, and comments stay.
    """
    named = paths or []
    if stdin is None and not named:
        raise typer.BadParameter("name files or directories, or pass --stdin", param_hint="'FILE|DIR'")
    if stdin is None and STDIN in named:
        raise typer.BadParameter("say which language stdin is in: pg or gq", param_hint="'--stdin'")
    if stdin is not None and named not in ([], [STDIN]):
        raise typer.BadParameter("stdin cannot be formatted together with files", param_hint="'--stdin'")

    ok = _format_stdin(stdin, check, diff) if stdin else _format_files(named, check, diff)
    if not ok:
        raise typer.Exit(FAILURE)


def _format_stdin(language: Language, check: bool, diff: bool) -> bool:
    before = read_source(STDIN)
    after = _formatter(language)(before, STDIN_NAME)
    if diff:
        say_diff(_diff(STDIN_NAME, before, after))
    if check:
        if before != after:
            say(f"would reformat {STDIN_NAME}")
        return before == after
    if not diff:
        say_exactly(after)
    return True


def _format_files(named: list[str], check: bool, diff: bool) -> bool:
    """Go through all files, also past ones that fail; whether all of them are as they should be."""
    changed = unchanged = failed = 0
    for path in find_sources(named, tuple(SUFFIXES)):
        try:
            before, after = _formatted(path)
            if before == after:
                unchanged += 1
                continue
            if not check and not diff:
                replace_source(path, after)
        except OmnigraphError as error:
            complain(error)
            failed += 1
            continue
        changed += 1
        if diff:
            say_diff(_diff(path, before, after))
        else:
            say(f"{'would reformat' if check else 'formatted'} {path}")
    if not diff:
        say(_summary(changed, unchanged, failed, check))
    return not failed and not (check and changed)


def _formatted(path: str) -> tuple[str, str]:
    """The text of a file, as it is and as it should be."""
    language = SUFFIXES.get(Path(path).suffix)
    if language is None:
        raise InvalidInput(
            f"{path} is neither a .pg nor a .gq file",
            hint="pass the text on stdin with --stdin pg or --stdin gq",
            details={"path": path},
        )
    before = read_source(path)
    return before, _formatter(language)(before, source_name(path))


def _formatter(language: Language) -> Callable[[str, str], str]:
    if language == "pg":
        from omnigraph.lang.pg.format_schema import format_schema

        return format_schema
    from omnigraph.lang.gq.format_query import format_queries

    return format_queries


def _diff(name: str, before: str, after: str) -> Iterator[str]:
    lines = difflib.unified_diff(_lines(before), _lines(after), name, name, "as it is", "formatted")
    for line in lines:
        # A file without a final line end would run into the next line of the diff.
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    # Only line feeds end a line here: a form feed in a comment must not look like a line of its own.
    return StringIO(text, newline="\n").readlines()


def _summary(changed: int, unchanged: int, failed: int, check: bool) -> str:
    parts = []
    if changed:
        parts.append(f"{count(changed, 'file')} {'would be reformatted' if check else 'formatted'}")
    if unchanged:
        parts.append(f"{count(unchanged, 'file')} already formatted")
    if failed:
        parts.append(f"{count(failed, 'file')} failed")
    return ", ".join(parts)
