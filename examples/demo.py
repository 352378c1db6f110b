"""A tour of OmniGraph with a graph of readers and books. Each command is printed and run, from the root folder."""

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
# The folder with the `omnigraph` program. Not resolved: the Python of a virtual environment is a symbolic link.
BIN = Path(sys.executable).parent

BOOKS = "examples/books"
# The graph of the tour, created again by each run. `*.omni` and `build` are in .gitignore.
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
    """A command with an explanation and its expected exit code.

    If `keep` is set, the first word of the output replaces ``<keep>`` in later commands.
    """

    title: str
    words: str
    command: str
    code: int = 0
    keep: str | None = None


def rate(who: str, stars: int, options: str = "") -> str:
    """Return the command that rates book b000."""
    params = f'{{"handle": "r0042", "slug": "b000", "stars": {stars}, "on": "2026-01-31"}}'
    return f"omnigraph mutate rate {ON} --as {who} --params '{params}' {options}".rstrip()


def ask(name: str, params: str, options: str = "") -> str:
    """Return the command that runs a query of the example."""
    return f"omnigraph query {name} {ON} --params '{params}' {options}".rstrip()


STEPS = (
    Step(
        "The schema",
        "Node and edge types, with typed properties and constraints.",
        f"cat {BOOKS}/schema.pg",
    ),
    Step(
        "Type-check the queries",
        "Each query has a name and typed parameters. Lint needs no graph and no data.",
        f"omnigraph lint --schema {BOOKS}/schema.pg --query {BOOKS}/queries.gq",
    ),
    Step(
        "Create a graph",
        "A graph is a folder, or a prefix in a bucket: one Lance table per type, and a manifest of their versions.",
        f"omnigraph init --schema {BOOKS}/schema.pg --as ana {GRAPH}",
    ),
    Step(
        "Generate data", "3,000 readers, 800 books and their ratings.", f"python {BOOKS}/make_data.py {DATA}"
    ),
    Step(
        "Load it as one commit",
        "Every record is checked: types, keys, constraints, both endpoints of every edge. The load is atomic.",
        f"omnigraph load --data {DATA} --mode append {GRAPH}",
    ),
    Step("Look up by key", "One row, found without a scan.", ask("reader", ME)),
    Step(
        "Traverse edges",
        "Books that people I follow rated highly and that I have not read: two hops, a negation, an aggregate.",
        ask("suggestions", ME),
    ),
    Step("Aggregate", "Ratings of books since 2000, grouped by genre.", ask("genres", '{"since": 2000}')),
    Step(
        "Full-text search",
        "Ranked by BM25. No index has to be created or refreshed: every committed row is found.",
        ask("about", '{"words": "heron lighthouse ice"}'),
    ),
    Step(
        "Vector search",
        "Nearest neighbours of a vector, among the books that a reader in Oslo gave five stars.",
        ask("like_this", '{"flavour": [0.9, 0.1, 0.8, 0.5], "town": "Oslo"}'),
    ),
    Step(
        "Explain a query",
        "The plan: lookups, scans and traversals in order, with estimated row counts.",
        f"omnigraph explain suggestions {ON} --params '{ME}'",
    ),
    Step(
        "Create a branch",
        "A branch is one row in the manifest. No data is copied.",
        f"omnigraph branch create trial --as ana --uri {GRAPH}",
    ),
    Step(
        "Change the branch",
        "Delete the most read book. Its ratings are deleted with it.",
        f"omnigraph mutate withdraw {ON} --branch trial --as ana --params '{COMET}'",
    ),
    Step("Read the branch", "The book has no ratings on `trial`.", ask("ratings", COMET, "--branch trial")),
    Step("Read main", "The same query: `main` is unchanged.", ask("ratings", COMET)),
    Step(
        "Constraints are enforced",
        "The schema allows no year before 1450. A rejected mutation has no effect.",
        f"omnigraph mutate --store {GRAPH} -e '{EARLY}'",
        code=1,
    ),
    Step(
        "Optimistic concurrency",
        "Ana and Bo both write as reader r0042, and both have read this commit. They require it to be current.",
        f"omnigraph commit list --limit 1 {GRAPH}",
        keep="seen",
    ),
    Step(
        "Bo writes first",
        "Five stars, if the branch is still at that commit.",
        rate("bo", 5, "--if-commit <seen>"),
    ),
    Step(
        "Ana's write is rejected",
        "One star, on the same condition. Exit code 4: the precondition failed, and nothing was written.",
        rate("ana", 1, "--if-commit <seen>"),
        code=4,
    ),
    Step(
        "Ana reads the new head",
        "The newest commit and its actor.",
        f"omnigraph commit list --limit 1 {GRAPH}",
        keep="now",
    ),
    Step("Ana retries", "Four stars, on top of the commit of Bo.", rate("ana", 4, "--if-commit <now>")),
    Step("The current rating", "Four stars.", ask("stars", STARS)),
    Step(
        "Time travel",
        "The same query at the commit of Bo: five stars. A commit can be read until garbage collection removes it.",
        ask("stars", STARS, "--snapshot <now>"),
    ),
    Step(
        "Compare the branches",
        "The number of changes by type. Only changed data is read.",
        f"omnigraph diff main trial --stat --uri {GRAPH}",
    ),
    Step(
        "A merge with a conflict",
        "`trial` deleted the book, and `main` rated it again. Nothing is written; each conflict has an id.",
        f"omnigraph branch merge trial --uri {GRAPH}",
        code=1,
    ),
    Step(
        "Resolve the conflict",
        "Take the side of `trial`: the book is deleted, with the new rating. One commit with two parents.",
        f"omnigraph branch merge trial --resolve theirs --as ana --uri {GRAPH}",
    ),
    Step("Read main", "The book has no ratings on `main` either.", ask("ratings", COMET)),
    Step(
        "Find the merge commit",
        "The merge was a mistake.",
        f"omnigraph commit list --limit 1 {GRAPH}",
        keep="merge",
    ),
    Step(
        "Revert the commit",
        "A new commit undoes it. Earlier and later commits are kept; history is never rewritten.",
        f"omnigraph revert <merge> --as bo --uri {GRAPH}",
    ),
    Step("The data is restored", "The book, its ratings, and the four stars.", ask("stars", STARS)),
    Step(
        "Export a branch",
        "JSON lines in a deterministic order: equal states give equal files.",
        f"omnigraph export {GRAPH} --branch trial --out {COPY}",
    ),
    Step(
        "Generate Parquet files",
        "50,000 more readers and 500,000 ratings.",
        f"python {BOOKS}/make_archive.py {ARCHIVE}",
    ),
    Step(
        "Load them with Spark, on a new branch",
        "Spark tasks read, check and write the rows; keys and endpoints are checked by joins. One commit.",
        f"omnigraph load --data Reader={ARCHIVE}/readers.parquet --data Rated={ARCHIVE}/ratings.parquet"
        f" --mode append --branch archive --from main --engine spark --report {GRAPH}",
    ),
    Step(
        "Query the new branch",
        "The aggregate from above, on the branch.",
        ask("genres", '{"since": 2000}', "--branch archive"),
    ),
    Step(
        "Test a pipeline",
        "One file declares sources, SQL views, targets and audits. Its tests run on fixtures.",
        "env SHOP_DB=none omnigraph pipeline test examples/shop/pipeline.yaml",
    ),
)

NEXT = f"""\
Try next, with the same graph:
  export PATH="$PWD/.venv/bin:$PATH"
  omnigraph query suggestions {ON} --params '{{"handle": "r0007"}}'
  omnigraph commit list {GRAPH}           the history, with ids for --snapshot
  omnigraph cleanup --keep 1 {GRAPH}      garbage collection; removes nothing without --confirm
  python -c 'import omnigraph as og; print(og.open("{GRAPH}").get("Book", "b001"))'
  docs/index.md                             the guides: Python, loading, queries, branches
"""


def main() -> int:
    """Run the tour. Return 1 if a command does not exit with the expected code."""
    shutil.rmtree(ROOT / GRAPH, ignore_errors=True)
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    started = time.monotonic()
    kept: dict[str, str] = {}
    for number, step in enumerate(STEPS, start=1):
        command = step.command
        for name, value in kept.items():
            command = command.replace(f"<{name}>", value)
        write(
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
            write(run.stdout)
            kept[step.keep] = run.stdout.partition(" ")[0]
        if run.returncode != step.code:
            write(f"\nexpected exit code {step.code}, got {run.returncode}\n")
            return 1
    write(f"\n{len(STEPS)} commands, {time.monotonic() - started:.0f} seconds. {NEXT}")
    return 0


def write(text: str) -> None:
    """Print and flush, so that the text appears before the output of the command."""
    sys.stdout.write(text)
    sys.stdout.flush()


def styled(code: str, text: str) -> str:
    """Return the text with an ANSI style if stdout is a terminal."""
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return text if plain else f"\033[{code}m{text}\033[0m"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        # The reader closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
