"""The state of a shell, and the execution of queries."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from omnigraph.api.display.text_table import fitted_table_lines
from omnigraph.cli.render.output import count, print_line, print_note
from omnigraph.cli.render.pager import paged_output
from omnigraph.cli.render.row_formats import text_lines
from omnigraph.cli.render.terminal import terminal_width
from omnigraph.cli.settings.config import TextFormat
from omnigraph.cli.state_arguments import read_moment
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime

    from omnigraph.api.graph import Graph
    from omnigraph.api.results.receipts import Receipt
    from omnigraph.api.results.result import Result
    from omnigraph.lang.gq import query_ast as ast

FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)
# Rows that an interactive shell prints of a result. A script prints all.
SHOWN_ROWS = 200
# Wider than any table: nothing is cut where there is no terminal.
UNLIMITED_WIDTH = 1_000_000


@dataclass(frozen=True)
class ShellQuery:
    """A query and the text that has it. `name` selects it in the text; None for a bare query."""

    text: str
    query: ast.Query
    name: str | None

    @property
    def is_mutation(self) -> bool:
        """Whether the query changes the graph."""
        from omnigraph.lang.gq import query_ast

        return isinstance(self.query.body, query_ast.MutationBody)

    @property
    def required(self) -> list[ast.Param]:
        """The parameters that need a value."""
        return [param for param in self.query.params if not param.type.nullable]

    @property
    def usage(self) -> str:
        """The command that runs the query."""
        members = ", ".join(f'"{param.name}": …' for param in self.query.params)
        return f".run {self.query.name}" + (f" {{{members}}}" if members else "")


@dataclass
class Session:
    """An open graph, the branch or state that queries read, and how results are printed.

    `at` is a state to read instead of the head of the branch. `row_limit` 0 prints all rows. `queries` has the
    queries that were declared here or read from files, by name.
    """

    graph: Graph
    address: str
    is_interactive: bool
    branch: str = "main"
    at: str | None = None
    format: TextFormat = "table"
    row_limit: int = 0
    has_timer: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    queries: dict[str, ShellQuery] = field(default_factory=dict)
    last: Result | None = None
    is_ended: bool = False

    @property
    def state(self) -> str | datetime | None:
        """The state to read, None for the head of the branch."""
        return read_moment(self.at)

    def run_query(self, text: str) -> None:
        """Run a query text, and print its rows or what it changed.

        A text of several declarations, or of one whose parameters have no value, is remembered and not run.
        """
        from omnigraph.lang.diagnostics import LanguageError
        from omnigraph.lang.gq.bare_query import query_source
        from omnigraph.lang.gq.query_parser import parse_queries

        source = query_source(text)
        try:
            parsed = parse_queries(source).queries
        except LanguageError:
            # The graph reports the error, with a hint for a text in another language.
            self.graph.query(text, branch=self.branch, at=self.state)
            raise
        if source.written is not None:
            self.run(ShellQuery(text, parsed[0], None), self.params)
            return
        found = self.declare(text, parsed)
        if len(found) == 1 and all(param.name in self.params for param in found[0].required):
            self.run(found[0], self.params)
            return
        for query in found:
            print_note(f"{query.query.name}: run it with {query.usage}")

    def declare(self, text: str, parsed: Iterable[ast.Query]) -> list[ShellQuery]:
        """Remember the queries of a text, so that `.run` can run them, and return them."""
        found = [ShellQuery(text, query, query.name) for query in parsed]
        self.queries.update((query.query.name, query) for query in found)
        return found

    def run(self, query: ShellQuery, params: dict[str, Any]) -> None:
        """Run a query, and print its rows or what it changed."""
        with self.timed():
            if query.is_mutation:
                self.refuse_write()
                self.show_receipt(self.graph.mutate(query.text, params, name=query.name, branch=self.branch))
                return
            result = self.graph.query(query.text, params, name=query.name, branch=self.branch, at=self.state)
        self.show_result(result)

    def show_result(self, result: Result) -> None:
        """Print the rows of a result, as many as the row limit allows, and remember it for `.export`."""
        self.last = result
        shown = result.head(self.row_limit) if self.row_limit else result
        with self.paged():
            if self.format != "table":
                for line in text_lines(shown, self.format):
                    print_line(line)
            elif result.columns:
                rows = [list(row.values()) for row in shown.rows()]
                for line in fitted_table_lines(result.columns, rows, terminal_width() or UNLIMITED_WIDTH):
                    print_line(line)
        if len(shown) < len(result):
            print_note(f"{len(shown):,} of {count(len(result), 'row')}; .limit N prints more")
        elif self.format == "table":
            print_line(count(len(result), "row"))

    def show_receipt(self, receipt: Receipt) -> None:
        """Print what a mutation changed."""
        nodes, edges = count(receipt.affected_nodes, "node"), count(receipt.affected_edges, "edge")
        commit = "nothing to commit" if receipt.commit is None else f"commit {receipt.commit.id}"
        print_line(f"changed {self.branch}: {nodes}, {edges} ({commit})")

    def refuse_write(self) -> None:
        """Raise `InvalidInput` if the shell reads an earlier state."""
        if self.at is not None:
            raise InvalidInput(
                f"the shell reads the state {self.at}, which cannot change",
                hint=f".at now returns to branch {self.branch}",
            )

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Print the time that the block took, if the timer is on."""
        start = time.perf_counter()
        yield
        if self.has_timer:
            print_note(f"time: {time.perf_counter() - start:.3f} s")

    def paged(self) -> Any:
        """Return the pager of an interactive shell."""
        return paged_output() if self.is_interactive else nullcontext()
