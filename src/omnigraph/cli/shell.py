"""What surrounds every command: options that may stand anywhere, old spellings, one error boundary."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from typer.core import TyperGroup

from omnigraph.cli.render.output import complain, complain_of_defect, warn
from omnigraph.errors import InvalidInput, OmnigraphError

FAILURE = 1

# Options of `omnigraph` itself that may also stand after a command: alone, and with a value.
GLOBAL_FLAGS = frozenset({"--debug", "--version", "-v", "--yes", "--quiet"})
GLOBAL_VALUES = frozenset({"--as", "--store", "--server", "--graph", "--profile", "--cluster"})

# What the help calls a parameter that takes a file.
_FILES = re.compile("FILE|DIR|PATH|CONFIG|BUNDLE")

OLD_SPELLINGS = {("check",): "lint", ("query", "lint"): "lint", ("query", "check"): "lint"}


def hoist_globals(args: Sequence[str]) -> list[str]:
    """The arguments with the global options moved to the front; what follows ``--`` is left alone.

    A value is joined to its option, so that nobody takes it for the command.

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
                # Alone, so that the parser misses the value instead of taking a command for it.
                return [*front, word]
            front.append(f"{word}={value}")
        else:
            rest.append(word)
    return [*front, *rest]


def modernise(args: Sequence[str]) -> tuple[list[str], str | None]:
    """The arguments with an old spelling of a command replaced, and the warning to give about it.

    >>> modernise(["--debug", "query", "check", "a.gq"])
    (['--debug', 'lint', 'a.gq'], '`omnigraph query check` is now `omnigraph lint`')
    >>> modernise(["lint", "check"])
    (['lint', 'check'], None)
    """
    start = next((place for place, arg in enumerate(args) if not arg.startswith("-")), len(args))
    for words, command in OLD_SPELLINGS.items():
        end = start + len(words)
        if tuple(args[start:end]) == words:
            warning = f"`omnigraph {' '.join(words)}` is now `omnigraph {command}`"
            return [*args[:start], command, *args[end:]], warning
    return list(args), None


def refuse_garbled(group: TyperGroup, args: Sequence[str]) -> None:
    """`InvalidInput` for an argument that is no text, unless it names a file, as which a system takes any bytes."""
    garbled = [place for place, word in enumerate(args) if not _is_text(word)]
    if not garbled:
        return
    command: Any = group
    for word in args:
        if isinstance(command, TyperGroup):
            command = command.commands.get(word, command)
    parameters = [*group.params, *command.params]
    for place in garbled:
        if not _names_file(parameters, args[place - 1] if place else "", args[place]):
            shown = args[place].encode("utf-8", "backslashreplace").decode()
            raise InvalidInput(f"an argument is not valid Unicode text: {shown}")


def _is_text(word: str) -> bool:
    # Bytes that are none reach a program as halves of surrogate pairs.
    return word.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in word)


def _names_file(parameters: Sequence[Any], before: str, word: str) -> bool:
    """Whether a word that stands behind another is the value of a parameter that takes a file."""
    option, equals, _ = word.partition("=")
    option = option if equals and option.startswith("--") else before
    taking = [item for item in parameters if option in item.opts and not getattr(item, "is_flag", False)]
    wanted = taking or [item for item in parameters if item.param_type_name == "argument"]
    return any(_FILES.search(item.metavar or "") for item in wanted)


class CommandLine(TyperGroup):
    """The root of all commands.

    Whatever a command raises ends here as one block on stderr and an exit code; a Python trace is shown only
    with ``--debug``.
    """

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command line and exit the process with the command's code."""
        given = hoist_globals(sys.argv[1:] if args is None else args)
        debug = "--debug" in given[: given.index("--")] if "--" in given else "--debug" in given
        given, warning = modernise(given)
        try:
            try:
                refuse_garbled(self, given)
                if warning:
                    warn(warning)
                return super().main(given, *rest, **extra)
            finally:
                # Here and not at the interpreter's exit, where a reader that has gone away cannot be handled.
                if sys.stdout is not None:
                    sys.stdout.flush()
        except OmnigraphError as error:
            _report(error, debug)
        except BrokenPipeError:
            # The reader has seen enough, as `head` does; there is nobody left to tell.
            _abandon_stdout()
        except OSError as error:
            _abandon_stdout()
            reason = error.strerror or str(error)
            # Only of a stream is it not said which file it is.
            named = f"{error.filename}: {reason.lower()}" if error.filename else None
            _report(InvalidInput(named or f"cannot write the output: {reason}"), debug)
        except Exception as error:  # noqa: BLE001 - the last line of defence: a defect is no reason to spill a trace
            _report(error, debug)
        sys.exit(FAILURE)


def _report(error: Exception, debug: bool) -> None:
    # stderr may be gone as well; the exit code still speaks.
    with suppress(OSError):
        if debug:
            traceback.print_exception(error)
        if isinstance(error, OmnigraphError):
            complain(error)
        else:
            complain_of_defect(error)


def _abandon_stdout() -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not fail over it again on exit."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
