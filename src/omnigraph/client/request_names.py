"""The parameters, headers and path segments of requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from omnigraph.api.results.commits import At, state_at
from omnigraph.budget.query_budget import QueryLimits
from omnigraph.errors import InvalidInput
from omnigraph.graph.argument_checks import require_text
from omnigraph.graph.branch_names import MAIN
from omnigraph.graph.state_names import qualify
from omnigraph.protocol.codec import IF_COMMIT, to_json_value

if TYPE_CHECKING:
    from omnigraph.api.results.changes import ChangeFilter
    from omnigraph.client.transport import Transport


def state_of(branch: str, at: At = None) -> dict[str, str]:
    """Return the members of a request that name a state: a branch, a commit, or a time on a branch.

    >>> state_of("main", "01J"), state_of("main", datetime(2024, 1, 31, 9, 30))
    ({'snapshot': '01J'}, {'branch': 'main', 'at': '2024-01-31T09:30:00+00:00'})
    """
    require_text("branch", branch)
    state = state_at(at)
    if state is None:
        return {"branch": branch}
    if isinstance(state, datetime):
        return {"branch": branch, "at": timestamp(state)}
    return {"snapshot": qualify(state, branch.strip()) if isinstance(state, str) else state.commit_id}


def place_of(transport: Transport, branch: str, at: At = None) -> dict[str, str]:
    """Return the members of `state_of`; raise `NotFound` if the branch does not exist.

    A request for a commit does not name a branch, so an extra request checks a branch other than main.
    """
    members, name = state_of(branch, at), branch.strip()
    if isinstance(state_at(at), str) and name != MAIN:
        # Not the list of branches, which needs permission to read every branch.
        transport.call("GET", "/snapshot", lambda _: None, params={"branch": name})
    return members


def params_of(params: Mapping[str, Any] | None) -> Any:
    """Return the parameters of a query as JSON. The server checks their names and types."""
    from omnigraph.lang.gq.query_parameters import bind_params

    bind_params((), params)
    return to_json_value(params)


def limits_of(limits: QueryLimits) -> dict[str, float]:
    """Return the members of a request that lower the limits of the server.

    >>> limits_of(QueryLimits(seconds=5, rows=100))
    {'timeout_seconds': 5, 'max_rows': 100}
    """
    members = {
        "timeout_seconds": limits.seconds,
        "max_rows": limits.rows,
        "max_bytes": limits.bytes,
        "max_edges": limits.edges,
    }
    return {name: value for name, value in members.items() if value is not None}


def timestamp(at: datetime) -> str:
    """Return a time in ISO 8601. A time without a zone is UTC.

    >>> timestamp(datetime(2024, 1, 31, 9, 30))
    '2024-01-31T09:30:00+00:00'
    """
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).isoformat()


def segment(name: str) -> str:
    """Return a name, percent-encoded as one segment of a URL path.

    >>> segment("feature/x"), segment("..")
    ('feature%2Fx', '%2E%2E')
    """
    if not require_text("name", name):
        raise InvalidInput("a name must not be empty")
    return quote(name, safe="").replace(".", "%2E")


def condition(commit_id: str | None) -> dict[str, str] | None:
    """Return the header of a conditional write, which requires that the branch head is this commit."""
    if commit_id is None:
        return None
    require_text("if_commit", commit_id)
    if not commit_id.isascii() or not commit_id.isalnum():
        raise InvalidInput(f"{commit_id!r} is not a commit id")
    return {IF_COMMIT: commit_id}


def filter_params(change_filter: ChangeFilter) -> Mapping[str, Any]:
    """Return the parameters of a filter of changes."""
    parts = {"kind": change_filter.kinds, "type": change_filter.types, "op": change_filter.ops}
    return {name: list(part) for name, part in parts.items() if part}
