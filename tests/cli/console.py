"""Pages whose ``console`` blocks are run: a line that begins with ``$ `` is a command, what follows is its output.

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

# Where pages say that a server listens.
SHOWN_ADDRESS = "127.0.0.1:8080"

BLOCK = re.compile(r"^```console\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
# What a page can only give an example of.
EXAMPLE = re.compile(
    r"(?P<cursor>(?<![\w-])[\w-]{120,}(?![\w-]))"
    r"|(?P<id>\b[0-9A-HJKMNP-TV-Z]{26}\b)"
    r"|(?P<version>\b\d{19,20}\b)"
    r"|(?P<time>\b\d{16}\b|\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"
    r"|(?P<size>\b[1-9]\d* bytes\b)"
)


@dataclass(frozen=True)
class Exchange:
    """A command and what it prints."""

    command: str
    output: str


def exchanges(text: str) -> list[Exchange]:
    """Every exchange of a page, in order."""
    found: list[Exchange] = []
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Exchange(command, output))
    return found


class Names:
    """What examples are called: ``<id 1>``, ``<version 2>`` in order of appearance; ``<time>`` and ``<size>``."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def settle(self, text: str) -> str:
        """The text with every example replaced by its name."""
        return EXAMPLE.sub(self._name, text)

    def value(self, name: str) -> str:
        """The example that was given a name."""
        return next(value for value, known in self._names.items() if known == name)

    def _name(self, match: re.Match[str]) -> str:
        kind = str(match.lastgroup)
        if kind in ("time", "size"):
            return f"<{kind}>"
        of_kind = sum(name.startswith(f"<{kind} ") for name in self._names.values())
        return self._names.setdefault(match[0], f"<{kind} {of_kind + 1}>")


class Console:
    """As much of a shell as pages need; anything else in them is refused."""

    def __init__(self) -> None:
        self._code = 0
        self._address = SHOWN_ADDRESS
        self._servers = ExitStack()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.close()

    def run(self, command: str) -> str:
        """What a command prints."""
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
    """The exchanges of a page, as it shows them and as they really are, with examples replaced by their names."""
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
