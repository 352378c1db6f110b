"""The tools that read: queries, schema, branches, commits and diffs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from omnigraph.api.graph import Graph
from omnigraph.api.results.result import Result
from omnigraph.lang.temporal import parse_moment
from omnigraph.mcp.pages import take_page
from omnigraph.mcp.tool import Arguments, Json, Limit, Offset, Paged, Tool
from omnigraph.protocol.result_bodies import commit_body

# An agent waits for each answer, and a query with a mistake can follow very many edges.
QUERY_SECONDS: Final = 60.0

QUERY_HELP: Final = """\
Run a read query in the .gq language on one consistent state of the graph. Read the schema first: names of \
types and properties are checked. Examples for a schema with `node Person { name: String @key  age: I32? }` and \
`edge Knows: Person -> Person`:

query older($n: I32) { match { $p: Person  $p.age >= $n } return { $p.name, $p.age } order { $p.age desc } limit 9 }
query friends($n: String) { match { $p: Person { name: $n }  $p knows $f } return { $f.name } }
query ages() { match { $p: Person } return { count($p) as people, avg($p.age) as age } }

Pass values as `params` ({"n": 30}), not inside the text. The result has `rows`, and `next_page` if there are \
more: repeat the call with these arguments."""

Branch: TypeAlias = Annotated[str, Field(description="Name of the branch.")]
At: TypeAlias = Annotated[
    str | None, Field(description="Commit id or ISO 8601 time to read at; by default the head of the branch.")
]
Params: TypeAlias = Annotated[
    dict[str, Any],
    Field(default_factory=dict, description="Values of the parameters, by name without $."),
]
QueryName: TypeAlias = Annotated[
    str | None, Field(description="Name of the query to run if the text has several.")
]


class QueryArguments(Paged):
    query: Annotated[str, Field(description="Query text in the .gq language.")]
    params: Params
    name: QueryName = None
    branch: Branch = "main"
    at: At = None


class SchemaArguments(Arguments):
    branch: Branch = "main"
    at: At = None


class BranchListArguments(Arguments):
    prefix: Annotated[str, Field(description="Return only names that begin with this text.")] = ""
    after: Annotated[
        str | None, Field(description="Continue after this name; from `next_page` of the page before.")
    ] = None
    limit: Limit = 100


class CommitArguments(Paged):
    branch: Branch = "main"
    limit: Limit = 20


class DiffArguments(Arguments):
    before: Annotated[str, Field(description="State to compare from: a branch or a commit id.")] = "main"
    after: Annotated[str, Field(description="State to compare with: a branch or a commit id.")]
    types: Annotated[
        list[str] | None, Field(description="Return only changes of these node and edge types.")
    ] = None
    limit: Limit = 100
    offset: Offset = 0


def result_page(result: Result, offset: int, limit: int) -> Json:
    """Return a page of the rows of a query, with the arguments of the next page."""
    # Only the rows that can be on the page, and one more, become JSON values.
    shown = Result(
        result.table.slice(offset, limit + 1), result.commit_id, result.query_name, types=result.types
    )
    page = take_page(shown.rows(), 0, limit)
    body: Json = {
        "columns": result.columns,
        "rows": page.items,
        "row_count": len(result),
        "graph_commit_id": result.commit_id,
    }
    if page.next_offset is not None:
        body["next_page"] = {"at": result.commit_id, "offset": offset + page.next_offset}
    return body


def read_at(at: str | None) -> str | datetime | None:
    """Parse a state: a time if it can be parsed as one, else a commit id."""
    moment = None if at is None else parse_moment(at)
    return at if moment is None else moment


def _query(graph: Graph, given: QueryArguments) -> Json:
    result = graph.query(
        given.query,
        given.params,
        name=given.name,
        branch=given.branch,
        at=read_at(given.at),
        timeout=QUERY_SECONDS,
    )
    return result_page(result, given.offset, given.limit)


def _schema(graph: Graph, given: SchemaArguments) -> Json:
    return {"schema_source": graph.schema.source(given.branch, read_at(given.at))}


def _list_branches(graph: Graph, given: BranchListArguments) -> Json:
    # One name more tells whether there is another page.
    names = graph.branches.list(prefix=given.prefix, after=given.after, limit=given.limit + 1)
    page = take_page(names, 0, given.limit)
    body: Json = {"branches": page.items}
    if page.next_offset is not None:
        body["next_page"] = {"after": page.items[-1]}
    return body


def _list_commits(graph: Graph, given: CommitArguments) -> Json:
    commits = graph.commits(given.branch, limit=given.offset + given.limit + 1)
    page = take_page((_commit(item) for item in commits), given.offset, given.limit)
    body: Json = {"commits": page.items}
    if page.next_offset is not None:
        body["next_page"] = {"offset": page.next_offset}
    return body


def _commit(commit: Any) -> Json:
    return {**commit_body(commit), "operation": commit.operation, "created_at": commit.created_at.isoformat()}


def _diff(graph: Graph, given: DiffArguments) -> Json:
    diff = graph.diff(given.before, given.after, types=given.types)
    before, after = diff.commits
    page = take_page((change.to_json() for change in diff), given.offset, given.limit)
    body: Json = {"from_graph_commit_id": before, "to_graph_commit_id": after, "stats": diff.stats()}
    body["changes"] = page.items
    if page.next_offset is not None:
        body["next_page"] = {"before": before, "after": after, "offset": page.next_offset}
    return body


READ_TOOLS: Final[tuple[Tool[Any], ...]] = (
    Tool("query", QUERY_HELP, QueryArguments, _query),
    Tool(
        "get_schema",
        "Return the schema of a branch in the .pg language: node types, edge types, properties and constraints.",
        SchemaArguments,
        _schema,
    ),
    Tool("list_branches", "List the branches of the graph by name.", BranchListArguments, _list_branches),
    Tool("list_commits", "List the commits of a branch, newest first.", CommitArguments, _list_commits),
    Tool(
        "diff_branches",
        "Return the inserted, updated and deleted nodes and edges between two states, with the values before and "
        "after, and their number by type. Use it to review a branch before a merge.",
        DiffArguments,
        _diff,
    ),
)
