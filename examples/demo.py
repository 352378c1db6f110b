"""A tour of what works today. Every command shown is run exactly as shown, from the project's root."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Where `omnigraph` was installed beside this Python. Not resolved: a virtual environment's Python is a link.
BIN = Path(sys.executable).parent

SOCIAL = "examples/social"
# The tour's graph, made anew each time. Folders of this ending are never committed.
GRAPH = "demo.omni"
MISTAKES = "examples/mistakes"

JOIN = (
    'query join() { insert Person { handle: "ann", name: "Ann", status: "active" }'
    ' insert Company { slug: "acme", name: "Acme", founded: 1999 }'
    ' insert WorksAt { from: "ann", to: "acme", role: "engineer" } }'
)
EARLY = 'query early() { insert Company { slug: "ur", name: "Ur Bank", founded: 12 } }'


@dataclass(frozen=True)
class Step:
    """Some words, a command, and the exit code that shows that it did what the words say."""

    title: str
    words: str
    command: str
    code: int = 0


STEPS = (
    Step(
        "A schema says what a graph may hold",
        "Nodes and edges have types, and their properties have constraints.",
        f"head -n 14 {SOCIAL}/schema.pg",
    ),
    Step(
        "It is compiled before anything is stored",
        "The hash names the schema itself: comments, layout and order do not change it.",
        f"omnigraph schema check {SOCIAL}/schema.pg",
    ),
    Step(
        "Queries are typechecked against it",
        "Reads and mutations, without a graph and without data.",
        f"omnigraph lint --schema {SOCIAL}/schema.pg --query {SOCIAL}/queries.gq",
    ),
    Step(
        "Mistakes are found where they are made",
        "All of them at once, each with its place and, where a name is misspelt, the nearest one.",
        f"omnigraph lint --schema {SOCIAL}/schema.pg --query {MISTAKES}/queries.gq",
        code=1,
    ),
    Step(
        "Sources have one layout",
        "The formatter keeps meaning and comments; with --diff it only shows what it would do.",
        f"omnigraph fmt --diff {MISTAKES}/untidy.gq",
    ),
    Step(
        "A schema changes by plan",
        "Renames keep the data, new enum values and nullable properties cost nothing.",
        f"omnigraph schema plan --from {SOCIAL}/schema.pg --schema {SOCIAL}/schema_next.pg",
    ),
    Step(
        "What stored data could not follow is refused",
        "Each refusal has its reason, and many have a code that programs can rely on.",
        f"omnigraph schema plan --from {SOCIAL}/schema.pg --schema {MISTAKES}/schema.pg",
    ),
    Step(
        "A graph is a folder, or a prefix in a bucket",
        "One table per type, and one manifest that says which versions count.",
        f"omnigraph init --schema {SOCIAL}/schema.pg --as ana {GRAPH}",
    ),
    Step(
        "A branch is one row",
        "Names are data: `review` and `review/ana` live side by side.",
        f"omnigraph branch create review/ana --as ana --uri {GRAPH}",
    ),
    Step(
        "A mutation is one commit",
        "Its statements apply in order; here on the branch, where `main` does not see them.",
        f"omnigraph mutate --store {GRAPH} --branch review/ana --as ana -e '{JOIN}'",
    ),
    Step(
        "Constraints hold over the whole of it",
        "A company may be founded between 1600 and 2100. Nothing of a refused mutation is visible.",
        f"omnigraph mutate --store {GRAPH} --branch review/ana -e '{EARLY}'",
        code=1,
    ),
    Step(
        "Everything that happened is on record",
        "Who, where, when; each commit is a complete state that can be read again.",
        f"omnigraph commit list --branch review/ana {GRAPH}",
    ),
    Step(
        "A snapshot names the exact version of every table",
        "Readers keep theirs for as long as they like, whatever writers do.",
        f"omnigraph snapshot --branch review/ana {GRAPH}",
    ),
    Step(
        "Nothing is removed by accident",
        "Cleanup only tells what it would do until it is told to go ahead.",
        f"omnigraph cleanup --keep 10 {GRAPH}",
    ),
)

NEXT = """\
Try next:
  .venv/bin/omnigraph --help                               every command
  .venv/bin/omnigraph lint --schema examples/research/schema.pg examples/research --json
                                                           what each query returns, reads and writes
  change a word in examples/social/queries.gq              and lint it again
  .venv/bin/omnigraph branch list --uri demo.omni          the graph this tour made is still there
  docs/guide/cli.md                                        each command with its output
"""


def main() -> int:
    """Run the tour; fail when a command does not end as it should."""
    shutil.rmtree(ROOT / GRAPH, ignore_errors=True)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    for number, step in enumerate(STEPS, start=1):
        say(f"\n{bold(f'{number}. {step.title}')}\n   {step.words}\n\n{bold(f'$ {step.command}')}\n")
        run = subprocess.run(shlex.split(step.command), cwd=ROOT, env=environment, check=False)
        if run.returncode != step.code:
            say(f"\nthis should have ended with exit code {step.code}, not {run.returncode}\n")
            return 1
    say(f"\n{NEXT}")
    return 0


def say(text: str) -> None:
    """Print at once, so that the words stand before what the command prints."""
    sys.stdout.write(text)
    sys.stdout.flush()


def bold(text: str) -> str:
    """Text that stands out on a terminal, and is left alone in a pipe."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        # Whoever reads this has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
