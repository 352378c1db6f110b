"""Requests to a server that implements only the public HTTP contract, without the routes and encodings of our own.

`PublicTransport` sends requests with the members that the contract has, and translates the responses to the exact
encoding that the other modules of the client decode. A member or a route that the contract does not have raises
`InvalidInput`: such a server would ignore the member, and a dry run would then write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx

from omnigraph.api.results.result import Result
from omnigraph.client.transport import Transport
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.protocol.codec import END, EXACT

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_JSON: Final = {"Accept": "application/json"}
_MAIN: Final = "main"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_QUERY_MEMBERS: Final = frozenset({"query", "name", "params", "branch"})
_FILTER_MEMBERS: Final = frozenset({"kind", "type", "op", "limit", "page_token"})
_STORED_MEMBERS: Final = frozenset({"params", "branch", "snapshot", "expect_mutation"})


@dataclass(frozen=True)
class JsonResult(Result):
    """A `Result` whose rows arrived as JSON. The types of `table` are derived from the values."""

    json_rows: list[dict[str, Any]] = field(default_factory=list, repr=False, kw_only=True)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as the server sent them."""
        return [dict(row) for row in self.json_rows]


class PublicTransport(Transport):
    """A `Transport` to a server of the public contract."""

    is_public = True

    def request(
        self,
        method: str,
        path: str,
        read: Callable[[httpx.Response], T],
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        writes: bool = False,
    ) -> T:
        """Send a request of the contract, and return what `read` makes of the translated response."""
        route = _find_route(method, path)
        members = {**(params or {}), **(body or {})}
        route.check(members)
        answer = super().request(
            method,
            path,
            lambda response: response.json(),
            params=None if params is None else route.select(params),
            body=None if body is None else route.select(body),
            headers={**(headers or {}), **_JSON},
            writes=writes,
        )
        try:
            found = route.translate(self, answer, members)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(
                f"the response of {self.url}{path} does not have the shape of the public contract",
                hint="check that the address is that of an OmniGraph server",
            ) from error
        if isinstance(found, Result):
            # The types agree: `read` of this route returns a result.
            return found  # type: ignore[return-value]
        return read(httpx.Response(200, json=found, headers={"Content-Type": EXACT}))

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Iterator[Iterator[bytes]]:
        """Send a read and return the chunks of a success, with the end mark that our own server sends."""
        route = _find_route(method, path)
        route.check({**(params or {}), **(body or {})})
        with super().stream(
            method, path, params=params, body=None if body is None else route.select(body)
        ) as it:
            yield _with_end(it) if path == "/export" else it

    def head_of(self, branch: str) -> dict[str, Any]:
        """Return the newest commit of a branch."""
        commits: list[dict[str, Any]] = self.call(
            "GET", "/commits", lambda found: found, params={"branch": branch}
        )
        return commits[0]


def _with_end(chunks: Iterable[bytes]) -> Iterator[bytes]:
    # The framing of HTTP shows that the stream is complete.
    last = b"\n"
    for chunk in chunks:
        last = chunk or last
        yield chunk
    yield END if last.endswith(b"\n") else b"\n" + END


# --- routes -------------------------------------------------------------------------------------------------


def _unchanged(_transport: PublicTransport, answer: Any, _members: Mapping[str, Any]) -> Any:
    return answer


@dataclass(frozen=True)
class _Route:
    """A route of the contract: the members of its requests, and how its response is translated.

    `local` are members that the client evaluates on the response.
    """

    method: str
    path: re.Pattern[str]
    members: frozenset[str] = frozenset()
    translate: Callable[[PublicTransport, Any, Mapping[str, Any]], Any] = _unchanged
    local: frozenset[str] = frozenset()

    def check(self, members: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for a member that the server would ignore."""
        for name, value in members.items():
            is_default = value is None or value is False or value == {}
            if (
                name not in self.members | self.local
                and not is_default
                and (name, value) != ("branch", _MAIN)
            ):
                raise InvalidInput(
                    f"the server does not support `{name}`: it implements only the public contract",
                    details={"member": name},
                )

    def select(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members that the server knows."""
        return {name: value for name, value in members.items() if name in self.members}


def _find_route(method: str, path: str) -> _Route:
    for route in _ROUTES:
        if route.method == method and route.path.fullmatch(path):
            return route
    raise InvalidInput(
        f"the server does not have the route {method} {path}: it implements only the public contract",
        hint="use a server of this package, or open the graph by the address of its storage",
        details={"route": f"{method} {path}"},
    )


def _commit(found: Mapping[str, Any]) -> dict[str, Any]:
    parents = (found.get("parent_commit_id"), found.get("merged_parent_commit_id"))
    return {
        "id": found["graph_commit_id"],
        "parents": [parent for parent in parents if parent],
        "branch": found.get("graph_branch") or _MAIN,
        "sequence": found["graph_manifest_version"],
        "actor": found.get("actor_id"),
        "created_at": (_EPOCH + timedelta(microseconds=found["created_at"])).isoformat(),
        # The contract has neither.
        "operation": "unknown",
        "message": found.get("message"),
    }


def _optional_commit(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else _commit(found)


def _translate_commit(_transport: PublicTransport, answer: Any, _members: Mapping[str, Any]) -> Any:
    return _commit(answer)


def _translate_commits(_transport: PublicTransport, answer: Any, members: Mapping[str, Any]) -> Any:
    actor, limit = members.get("actor"), members.get("limit")
    found = [_commit(item) for item in answer["commits"] if actor is None or item.get("actor_id") == actor]
    return found[:limit]


def _translate_branches(_transport: PublicTransport, answer: Any, members: Mapping[str, Any]) -> Any:
    prefix, after = members.get("prefix") or "", members.get("after")
    names = sorted(
        name for name in answer["branches"] if name.startswith(prefix) and (after is None or name > after)
    )
    return {"branches": names[: members.get("limit")]}


def _translate_created_branch(transport: PublicTransport, answer: Any, _members: Mapping[str, Any]) -> Any:
    return {"name": answer["name"], "commit_id": transport.head_of(answer["name"])["id"]}


def _translate_merge(transport: PublicTransport, answer: Any, _members: Mapping[str, Any]) -> Any:
    is_changed = answer["outcome"] != "already_up_to_date"
    return {
        "outcome": answer["outcome"],
        "commit": transport.head_of(answer["target"]) if is_changed else None,
        "branch_deleted": answer.get("branch_deleted"),
        "branch_delete_error": answer.get("branch_delete_error"),
    }


def _translate_change(_transport: PublicTransport, answer: Any, _members: Mapping[str, Any]) -> Any:
    return {
        "commit": _optional_commit(answer.get("commit")),
        "affected_nodes": answer["affected_nodes"],
        "affected_edges": answer["affected_edges"],
        "query_name": answer["query_name"],
    }


def _translate_rows(_transport: PublicTransport, answer: Any, _members: Mapping[str, Any]) -> Any:
    rows: list[dict[str, Any]] = answer["rows"]
    columns = answer.get("columns") or list(rows[0] if rows else ())
    target = answer["target"]
    return JsonResult(
        _table(rows, columns),
        answer.get("graph_commit_id") or target.get("snapshot") or "",
        answer["query_name"],
        target.get("branch"),
        target.get("snapshot"),
        json_rows=rows,
    )


def _translate_stored(transport: PublicTransport, answer: Any, members: Mapping[str, Any]) -> Any:
    translate = _translate_rows if "rows" in answer else _translate_change
    return translate(transport, answer, members)


def translate_load(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the receipt of a load in the exact encoding."""
    return {
        "commit": _optional_commit(answer.get("commit")),
        "mode": answer["mode"],
        "branch": answer["branch"],
        "branch_created": answer["branch_created"],
        "nodes": {item["name"]: item["entities_loaded"] for item in answer["nodes"]},
        "edges": {item["name"]: item["entities_loaded"] for item in answer["edges"]},
    }


def _translate_block(found: Mapping[str, Any]) -> dict[str, Any]:
    optional = dict.fromkeys(("parent_commit_id", "merged_parent_commit_id", "actor_id"))
    changes = [
        {
            "kind": item["kind"],
            "type_name": item["type"]["name"],
            "type_id": item["type"]["id"],
            "id": item["id"],
            "op": item["op"],
            "before": _image(item.get("before")),
            "after": _image(item.get("after")),
        }
        for item in found["changes"]
    ]
    return {"cause": {**optional, **found["cause"]}, "changes": changes}


def _image(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else {name: value for name, value in found.items() if value is not None}


def _translate_changes(_transport: PublicTransport, answer: Any, _members: Mapping[str, Any]) -> Any:
    return {**_translate_block(answer), "next_page_token": answer.get("next_page_token")}


def _translate_feed(_transport: PublicTransport, answer: Any, _members: Mapping[str, Any]) -> Any:
    pages = {name: answer.get(name) for name in ("next_page_token", "cursor", "caught_up")}
    return {"blocks": [_translate_block(block) for block in answer["blocks"]], **pages}


def _table(rows: list[dict[str, Any]], columns: list[str]) -> pa.Table:
    import pyarrow as pa

    arrays = []
    for name in columns:
        values = [row.get(name) for row in rows]
        try:
            arrays.append(pa.array(values))
        except pa.ArrowException:
            # Values of several types.
            arrays.append(pa.array([None if value is None else json.dumps(value) for value in values]))
    return pa.table(arrays, names=columns)


def _route(
    method: str,
    path: str,
    members: Iterable[str] = (),
    translate: Callable[[PublicTransport, Any, Mapping[str, Any]], Any] = _unchanged,
    local: Iterable[str] = (),
) -> _Route:
    pattern = re.compile(re.escape(path).replace(r"\*", "[^/]+"))
    return _Route(method, pattern, frozenset(members), translate, frozenset(local))


_ROUTES: Final = (
    _route("GET", "/branches", (), _translate_branches, ("prefix", "after", "limit")),
    _route("POST", "/branches", ("name", "from"), _translate_created_branch),
    _route("DELETE", "/branches/*"),
    _route("POST", "/branches/merge", ("source", "target", "delete_branch"), _translate_merge),
    _route("GET", "/commits", ("branch",), _translate_commits, ("actor", "limit")),
    _route("GET", "/commits/*", (), _translate_commit),
    _route("GET", "/commits/*/changes", _FILTER_MEMBERS, _translate_changes),
    _route("GET", "/changes", _FILTER_MEMBERS | {"branch", "start", "cursor"}, _translate_feed),
    _route("GET", "/schema"),
    _route("GET", "/queries"),
    _route("POST", "/query", _QUERY_MEMBERS | {"snapshot"}, _translate_rows),
    _route("POST", "/mutate", _QUERY_MEMBERS, _translate_change),
    _route("POST", "/mutate/if-graph-commit", _QUERY_MEMBERS, _translate_change),
    _route("POST", "/queries/*", _STORED_MEMBERS, _translate_stored),
    _route("POST", "/queries/*/if-graph-commit", _STORED_MEMBERS, _translate_stored),
    _route("POST", "/export", ("branch", "type_names")),
    _route("POST", "/changes/baseline", ("branch", "kind", "type", "op")),
)
