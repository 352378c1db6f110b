"""`omnigraph fmt`: format schema and query files."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from omnigraph.cli.failures import FAILURE
from omnigraph.cli.render.output import count, print_diff, print_error, print_line, print_verbatim
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
        bool,
        typer.Option(
            "--check",
            help="Write nothing; print the files that would change, and exit with 1 if there are any.",
        ),
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Write nothing; print a diff.")] = False,
    stdin: Annotated[
        Language | None,
        typer.Option(
            "--stdin", metavar="pg|gq", help="Format stdin, in this language, and write the result to stdout."
        ),
    ] = None,
) -> None:
    """Format schema and query files in place.

    Files that are already formatted are not written. The meaning of a source never changes, and comments are kept.
    """
    named = paths or []
    if stdin is None and not named:
        raise typer.BadParameter("pass files or directories, or --stdin", param_hint="'FILE|DIR'")
    if stdin is None and STDIN in named:
        raise typer.BadParameter("pass the language of stdin: pg or gq", param_hint="'--stdin'")
    if stdin is not None and named not in ([], [STDIN]):
        raise typer.BadParameter("stdin cannot be formatted together with files", param_hint="'--stdin'")

    ok = _format_stdin(stdin, check, diff) if stdin else _format_files(named, check, diff)
    if not ok:
        raise typer.Exit(FAILURE)


def _format_stdin(language: Language, check: bool, diff: bool) -> bool:
    before = read_source(STDIN)
    after = _formatter(language)(before, STDIN_NAME)
    if diff:
        print_diff(_diff(STDIN_NAME, before, after))
    if check:
        if before != after:
            print_line(f"would reformat {STDIN_NAME}")
        return before == after
    if not diff:
        print_verbatim(after)
    return True


def _format_files(named: list[str], check: bool, diff: bool) -> bool:
    """Format all files, also after a failure. Return whether all succeeded and, with `check`, are formatted."""
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
            print_error(error)
            failed += 1
            continue
        changed += 1
        if diff:
            print_diff(_diff(path, before, after))
        else:
            print_line(f"{'would reformat' if check else 'formatted'} {path}")
    if not diff:
        print_line(_summary(changed, unchanged, failed, check))
    return not failed and not (check and changed)


def _formatted(path: str) -> tuple[str, str]:
    """Return the text of a file before and after formatting."""
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
    lines = difflib.unified_diff(_lines(before), _lines(after), name, name, "original", "formatted")
    for line in lines:
        # A last line without a line ending would be joined with the next line of the diff.
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    # Split at line feeds only, unlike `str.splitlines`, which also splits at form feeds.
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
