"""A tour of OmniGraph on a small town of readers. Every command shown is run exactly as shown, from the root."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Where `omnigraph` was installed beside this Python. Not resolved: a virtual environment's Python is a link.
BIN = Path(sys.executable).parent

BOOKS = "examples/books"
# The tour's graph, made anew each time. Neither folders of this ending nor what is in `build` is ever committed.
GRAPH = "demo.omni"
DATA = "build/books.ndjson"
COPY = "build/trial.ndjson"
ARCHIVE = "build/archive"
ON = f"--query {BOOKS}/queries.gq --store {GRAPH}"
ME = '{"handle": "r0042"}'
COMET = '{"slug": "b000"}'
STARS = '{"handle": "r0042", "slug": "b000"}'
EARLY = (
    'query early() { insert Book { slug: "ur", title: "Ur", blurb: "Clay", genre: "history", year: -700 } }'
)


@dataclass(frozen=True)
class Step:
    """Some words, a command, and the exit code that shows that it did what the words say.

    With `keep` the first word of what it prints takes the place of ``<name>`` in later commands.
    """

    title: str
    words: str
    command: str
    code: int = 0
    keep: str | None = None


def rate(who: str, stars: int, options: str = "") -> str:
    """The command that rates the town's favourite book."""
    params = f'{{"handle": "r0042", "slug": "b000", "stars": {stars}, "on": "2026-01-31"}}'
    return f"omnigraph mutate rate {ON} --as {who} --params '{params}' {options}".rstrip()


def ask(name: str, params: str, options: str = "") -> str:
    """The command that runs a query of the example."""
    return f"omnigraph query {name} {ON} --params '{params}' {options}".rstrip()


STEPS = (
    Step(
        "A schema says what a graph may hold",
        "Nodes and edges have types, their properties have types and rules.",
        f"cat {BOOKS}/schema.pg",
    ),
    Step(
        "Queries are checked against it before anything runs",
        "Each has a name and typed parameters. This needs no graph and no data.",
        f"omnigraph lint --schema {BOOKS}/schema.pg --query {BOOKS}/queries.gq",
    ),
    Step(
        "A graph is a folder, or a prefix in a bucket",
        "One table per type, and one manifest that says which versions of them count.",
        f"omnigraph init --schema {BOOKS}/schema.pg --as ana {GRAPH}",
    ),
    Step("Some data", "Three thousand readers and what they think.", f"python {BOOKS}/make_data.py {DATA}"),
    Step(
        "A load is one commit",
        "Every record is checked first: types, keys, rules, both ends of every edge. All of it lands, or nothing.",
        f"omnigraph load --data {DATA} --mode append {GRAPH}",
    ),
    Step("Ask by key", "One row, found without looking at the others.", ask("reader", ME)),
    Step(
        "Follow edges, leave out, count",
        "What people I follow loved and I have not read: two hops, and a negation.",
        ask("suggestions", ME),
    ),
    Step("Group", "All ratings of books since 2000.", ask("genres", '{"since": 2000}')),
    Step(
        "Search text",
        "Ranked by BM25, with no index to make or refresh: what is committed is found.",
        ask("about", '{"words": "heron lighthouse ice"}'),
    ),
    Step(
        "Search by likeness",
        "Funny and fast, not dark, and loved by somebody in Oslo: the pattern narrows, the vector ranks.",
        ask("like_this", '{"flavour": [0.9, 0.1, 0.8, 0.5], "town": "Oslo"}'),
    ),
    Step(
        "See how a question is answered",
        "What is looked up and how, in which order, and how many rows are expected where.",
        f"omnigraph explain suggestions {ON} --params '{ME}'",
    ),
    Step(
        "A branch is one row",
        "Nothing is copied. `trial` is now a second line of history.",
        f"omnigraph branch create trial --as ana --uri {GRAPH}",
    ),
    Step(
        "Change something there",
        "Withdraw the most read book; every rating of it goes with it.",
        f"omnigraph mutate withdraw {ON} --branch trial --as ana --params '{COMET}'",
    ),
    Step("The branch has forgotten it", "Nobody has read it there.", ask("ratings", COMET, "--branch trial")),
    Step("`main` has not", "Same question, other branch.", ask("ratings", COMET)),
    Step(
        "Mistakes do not get in",
        "The schema knows no books from before the printing press. Nothing of a refused change is visible.",
        f"omnigraph mutate --store {GRAPH} -e '{EARLY}'",
        code=1,
    ),
    Step(
        "Two people write at once",
        "Ana and Bo share the account r0042, and both have seen this state. Its id is what they hold on to.",
        f"omnigraph commit list --limit 1 {GRAPH}",
        keep="seen",
    ),
    Step("Bo is first", "Five stars, if nothing has changed.", rate("bo", 5, "--if-commit <seen>")),
    Step(
        "Ana is refused",
        "One star, on the same condition. Exit code 4 says that she lost the race; nothing was written.",
        rate("ana", 1, "--if-commit <seen>"),
        code=4,
    ),
    Step(
        "She looks again",
        "What is the state now, and who made it?",
        f"omnigraph commit list --limit 1 {GRAPH}",
        keep="now",
    ),
    Step("And decides", "Four stars, on top of what Bo left.", rate("ana", 4, "--if-commit <now>")),
    Step("The newest state has her rating", "Four.", ask("stars", STARS)),
    Step(
        "The past is still there",
        "The same question to the state that Bo left: five. Any commit can be read, for as long as it is kept.",
        ask("stars", STARS, "--snapshot <now>"),
    ),
    Step(
        "Two branches have moved on",
        "How they differ by now: only what was changed is looked at.",
        f"omnigraph diff main trial --stat --uri {GRAPH}",
    ),
    Step(
        "A merge asks what it cannot know",
        "`trial` withdrew the book that was rated again on `main`. Nothing is written; the question has an id.",
        f"omnigraph branch merge trial --uri {GRAPH}",
        code=1,
    ),
    Step(
        "And does what it is told",
        "The book goes, and the new rating with it. One commit with two parents.",
        f"omnigraph branch merge trial --resolve theirs --as ana --uri {GRAPH}",
    ),
    Step("It is gone", "Now nobody has read it on `main` either.", ask("ratings", COMET)),
    Step(
        "Which was a mistake",
        "Which commit was it?",
        f"omnigraph commit list --limit 1 {GRAPH}",
        keep="merge",
    ),
    Step(
        "Any commit can be undone",
        "By a new one: what came before and after stays, and history is never rewritten.",
        f"omnigraph revert <merge> --as bo --uri {GRAPH}",
    ),
    Step("All of it is back", "The book, its ratings, and the four stars.", ask("stars", STARS)),
    Step(
        "What is in a graph can leave it",
        "As JSON lines in an order that only depends on what is in it: two equal states give equal files.",
        f"omnigraph export {GRAPH} --branch trial --out {COPY}",
    ),
    Step(
        "Much data comes as tables",
        "Another town has kept records for years: half a million ratings, in Parquet.",
        f"python {BOOKS}/make_archive.py {ARCHIVE}",
    ),
    Step(
        "Spark brings it in, on a branch of its own",
        "Its tasks read, check and write; keys and ends are compared as a whole; one commit takes everything in.",
        f"omnigraph load --data Reader={ARCHIVE}/readers.parquet --data Rated={ARCHIVE}/ratings.parquet"
        f" --mode append --branch archive --from main --engine spark --report {GRAPH}",
    ),
    Step(
        "Look at it before anybody else does",
        "The same question as above, on the branch.",
        ask("genres", '{"since": 2000}', "--branch archive"),
    ),
)

NEXT = f"""\
Try next; the graph and its data are still there:
  export PATH="$PWD/.venv/bin:$PATH"
  omnigraph query suggestions {ON} --params '{{"handle": "r0007"}}'
  omnigraph commit list {GRAPH}           everything that happened, with ids for --snapshot
  omnigraph cleanup --keep 1 {GRAPH}      what old states cost; it only tells until --confirm
  python -c 'import omnigraph as og; print(og.open("{GRAPH}").get("Book", "b001"))'
  docs/index.md                             the guides: Python, loading, queries, branches
"""


def main() -> int:
    """Run the tour; fail when a command does not end as it should."""
    shutil.rmtree(ROOT / GRAPH, ignore_errors=True)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    started = time.monotonic()
    kept: dict[str, str] = {}
    for number, step in enumerate(STEPS, start=1):
        command = step.command
        for name, value in kept.items():
            command = command.replace(f"<{name}>", value)
        say(
            f"\n{styled('1', f'{number}. {step.title}')}\n   {step.words}\n\n{styled('36', f'$ {command}')}\n"
        )
        run = subprocess.run(
            shlex.split(command),
            cwd=ROOT,
            env=environment,
            check=False,
            text=True,
            stdout=None if step.keep is None else subprocess.PIPE,
        )
        if step.keep is not None:
            say(run.stdout)
            kept[step.keep] = run.stdout.partition(" ")[0]
        if run.returncode != step.code:
            say(f"\nthis should have ended with exit code {step.code}, not {run.returncode}\n")
            return 1
    say(f"\n{len(STEPS)} commands, {time.monotonic() - started:.0f} seconds. {NEXT}")
    return 0


def say(text: str) -> None:
    """Print at once, so that the words stand before what the command prints."""
    sys.stdout.write(text)
    sys.stdout.flush()


def styled(code: str, text: str) -> str:
    """Text that stands out on a terminal, and is left alone in a pipe."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return text if plain else f"\033[{code}m{text}\033[0m"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        # Whoever reads this has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
