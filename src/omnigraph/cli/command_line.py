"""The root command: global options in any position, deprecated spellings, and the error handler."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from typer.core import TyperGroup

from omnigraph.cli.failures import reported_failures
from omnigraph.cli.old_options import refuse_old_options
from omnigraph.cli.render.output import print_warning
from omnigraph.errors import InvalidInput

# Options of `omnigraph` itself that may also be written after a command: flags, and options with a value.
GLOBAL_FLAGS = frozenset({"--debug", "--version", "-v", "--yes", "--quiet", "--no-pager"})
GLOBAL_VALUES = frozenset({"--as", "--store", "--server", "--graph", "--profile", "--cluster"})

# Commands whose output may be longer than the screen.
PAGED = frozenset(
    {
        "blame",
        "changes",
        "commit",
        "diff",
        "du",
        "explain",
        "help",
        "history",
        "log",
        "query",
        "read",
        "snapshot",
    }
)

# Metavars of parameters that take a file name.
_FILES = re.compile("FILE|DIR|PATH|CONFIG|BUNDLE")

OLD_SPELLINGS = {("check",): "lint", ("query", "lint"): "lint", ("query", "check"): "lint"}


def hoist_globals(args: Sequence[str]) -> list[str]:
    """Return the arguments with the global options moved to the front; arguments after ``--`` stay in place.

    A value is joined to its option with `=`, so that it cannot be parsed as the command.

    >>> hoist_globals(["lint", "a.gq", "--debug", "--", "-v"])
    ['--debug', 'lint', 'a.gq', '--', '-v']
    >>> hoist_globals(["branch", "list", "--store", "g.omni", "--json"])
    ['--store=g.omni', 'branch', 'list', '--json']
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in GLOBAL_FLAGS or ("=" in word and word.partition("=")[0] in GLOBAL_VALUES):
            front.append(word)
        elif word in GLOBAL_VALUES:
            value = next(words, None)
            if value is None:
                # Last, so that the parser reports the missing value instead of reading the command as the value.
                return [*front, word]
            front.append(f"{word}={value}")
        else:
            rest.append(word)
    return [*front, *rest]


def replace_old_spelling(args: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments with a deprecated spelling of a command replaced, and a warning if there was one.

    >>> replace_old_spelling(["--debug", "query", "check", "a.gq"])
    (['--debug', 'lint', 'a.gq'], '`omnigraph query check` is now `omnigraph lint`')
    >>> replace_old_spelling(["lint", "check"])
    (['lint', 'check'], None)
    """
    start = next((place for place, arg in enumerate(args) if not arg.startswith("-")), len(args))
    for words, command in OLD_SPELLINGS.items():
        end = start + len(words)
        if tuple(args[start:end]) == words:
            warning = f"`omnigraph {' '.join(words)}` is now `omnigraph {command}`"
            return [*args[:start], command, *args[end:]], warning
    return list(args), None


def refuse_invalid_unicode(group: TyperGroup, args: Sequence[str]) -> None:
    """Raise `InvalidInput` for an argument that is not valid Unicode, unless it is the name of a file."""
    invalid = [place for place, word in enumerate(args) if not _is_text(word)]
    if not invalid:
        return
    command: Any = group
    for word in args:
        if isinstance(command, TyperGroup):
            command = command.commands.get(word, command)
    parameters = [*group.params, *command.params]
    for place in invalid:
        if not _names_file(parameters, args[place - 1] if place else "", args[place]):
            shown = args[place].encode("utf-8", "backslashreplace").decode()
            raise InvalidInput(f"an argument is not valid Unicode text: {shown}")


def _is_text(word: str) -> bool:
    # Python decodes invalid bytes of an argument to lone surrogates (PEP 383).
    return word.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in word)


def _names_file(parameters: Sequence[Any], before: str, word: str) -> bool:
    """Whether `word`, which follows `before`, is the value of a parameter that takes a file name."""
    option, equals, _ = word.partition("=")
    option = option if equals and option.startswith("--") else before
    options = [item for item in parameters if option in item.opts and not getattr(item, "is_flag", False)]
    candidates = options or [item for item in parameters if item.param_type_name == "argument"]
    return any(_FILES.search(item.metavar or "") for item in candidates)


class CommandLine(TyperGroup):
    """The root command group and error handler.

    Every exception of a command is printed on stderr and ends the process with an exit code. The Python traceback
    is printed only with ``--debug``.
    """

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command line and exit the process with the code of the command."""
        words = hoist_globals(sys.argv[1:] if args is None else args)
        debug = "--debug" in words[: words.index("--")] if "--" in words else "--debug" in words
        words, warning = replace_old_spelling(words)
        as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
        with reported_failures(debug=debug, as_json=as_json):
            refuse_invalid_unicode(self, words)
            if warning:
                print_warning(warning)
            refuse_old_options(words)
            with _pager(words):
                return super().main(words, *rest, **extra)


def _pager(words: Sequence[str]) -> AbstractContextManager[None]:
    """Return the pager for the output of the command, if it is for people and stdout is a terminal."""
    command = next((word for word in words if not word.startswith("-")), None)
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    if command not in PAGED or not is_terminal or "--no-pager" in words or "--json" in words:
        return nullcontext()
    from omnigraph.cli.render.pager import paged_output

    return paged_output()
