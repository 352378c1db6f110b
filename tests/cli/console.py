"""Run the ``console`` blocks of a page: a line ``$ ...`` is a command, the next lines are its output.

Output means errors too, in the order in which a terminal shows them. ``echo $?`` prints the exit code of the
command before. What differs from run to run, such as ids and times, is compared by where it occurs: a page that
shows one id twice must be right about that. A server in the background is a real one, at another port than the
page shows, and ends with the page.
"""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.cli.running import run, serving

# The address of the server on the pages.
SHOWN_ADDRESS = "127.0.0.1:8080"

BLOCK = re.compile(r"^```console\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
# Values that differ in every run.
EXAMPLE = re.compile(
    r"(?P<cursor>(?<![\w-])[\w-]{120,}(?![\w-]))"
    r"|(?P<id>\b[0-9A-HJKMNP-TV-Z]{26}\b)"
    r"|(?P<short>\b01[0-9A-HJKMNP-TV-Z]{8,23}\b)"
    r"|(?P<version>\b\d{19,20}\b)"
    r"|(?P<time>\b\d{16}\b|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{6})?Z)"
    r"|(?P<size>\b[1-9]\d* bytes\b)"
)


@dataclass(frozen=True)
class Exchange:
    """A command and its output."""

    command: str
    output: str


def exchanges(text: str) -> list[Exchange]:
    """Return every exchange of a page, in order."""
    found: list[Exchange] = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Exchange(command, output))
    return found


class Names:
    """Placeholders of values: ``<id 1>``, ``<version 2>`` in order of appearance; ``<time>`` and ``<size>``."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def settle(self, text: str) -> str:
        """Return the text with every varying value replaced by its placeholder."""
        return EXAMPLE.sub(self._name, text)

    def value(self, name: str) -> str:
        """Return the value of a placeholder."""
        return next(value for value, known in self._names.items() if known == name)

    def _name(self, match: re.Match[str]) -> str:
        kind = str(match.lastgroup)
        if kind in ("time", "size"):
            return f"<{kind}>"
        of_kind = sum(name.startswith(f"<{kind} ") for name in self._names.values())
        return self._names.setdefault(match[0], f"<{kind} {of_kind + 1}>")


class Console:
    """A minimal shell: only the syntax that the pages use is supported."""

    def __init__(self) -> None:
        self._code = 0
        self._address = SHOWN_ADDRESS
        self._servers = ExitStack()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def run(self, command: str) -> str:
        """Run a command and return its output."""
        printed = self._run(command.replace(SHOWN_ADDRESS, self._address))
        return printed.replace(self._address, SHOWN_ADDRESS)

    def _run(self, command: str) -> str:
        words = shlex.split(command)
        stdin = ""
        if "<" in words:
            place = words.index("<")
            stdin = Path(words[place + 1]).read_text(encoding="utf-8")
            words[place : place + 2] = []
        match words:
            case ["echo", "$?"]:
                return f"{self._code}\n"
            case ["cat", path]:
                self._code = 0
                return Path(path).read_text(encoding="utf-8")
            case ["omnigraph", "serve", *args, "2>", _, "&"]:
                self._address = self._servers.enter_context(serving(*args))
                return f"OMNIGRAPH_LISTEN_ADDR={self._address}\n"
            case ["omnigraph", *args]:
                outcome = run(*args, stdin=stdin)
                self._code = outcome.code
                return outcome.output
        raise AssertionError(f"the guide's console does not know: {command}")


def replay(text: str) -> tuple[list[Exchange], list[Exchange]]:
    """Return the outputs that a page shows and the actual outputs, with placeholders for varying values."""
    on_page, in_fact = Names(), Names()
    shown, real = [], []
    with Console() as console:
        for item in exchanges(text):
            command = on_page.settle(item.command)
            output = console.run(
                EXAMPLE.sub(lambda match: in_fact.value(on_page.settle(match[0])), item.command)
            )
            shown.append(Exchange(command, on_page.settle(item.output)))
            real.append(Exchange(command, in_fact.settle(output)))
    return shown, real
