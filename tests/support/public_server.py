"""A small server of the public HTTP contract, written from its documented shapes and without code of the project.

It holds one graph `team` of people in memory. A query returns all people of a branch or a commit, whatever its
text. A mutation inserts the person whose name is the parameter `n`. It has none of the routes and encodings that
only our own server has, and answers an unknown route with an empty 404.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

SCHEMA = "node Person { name: String @key  age: I32? }\n"
TOKEN = "public-token"
ACTOR = "ann"
Json = dict[str, Any]
Reply = tuple[int, Json | list[Json] | None]


@dataclass
class Commit:
    id: str
    branch: str
    version: int
    parent: str | None
    people: dict[str, Json]
    merged: str | None = None
    added: list[str] = field(default_factory=list)

    def to_json(self) -> Json:
        return {
            "graph_commit_id": self.id,
            "graph_branch": None if self.branch == "main" else self.branch,
            "graph_manifest_version": self.version,
            "parent_commit_id": self.parent,
            "merged_parent_commit_id": self.merged,
            "actor_id": ACTOR,
            "created_at": 1_700_000_000_000_000 + self.version,
        }


class Team:
    """The graph."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.commits: dict[str, Commit] = {}
        self.heads: dict[str, str] = {}
        self.requests: list[tuple[str, str, Json]] = []
        self.commit("main", {}, [])

    def commit(
        self, branch: str, people: dict[str, Json], added: list[str], merged: str | None = None
    ) -> Commit:
        number = len(self.commits) + 1
        made = Commit(f"{number:026d}", branch, number, self.heads.get(branch), people, merged, added)
        self.commits[made.id] = made
        self.heads[branch] = made.id
        return made

    def head(self, branch: str) -> Commit:
        return self.commits[self.heads[branch]]

    def add(self, branch: str, new: dict[str, Json]) -> Commit:
        return self.commit(branch, {**self.head(branch).people, **new}, list(new))


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: PublicServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - signature of the library
        """Log nothing."""

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        params = {name: values[0] for name, values in parse_qs(parts.query).items()}
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = self._read_chunks()
        status, answer = self._answer(parts.path, params, data)
        if isinstance(answer, list):
            self._send_lines(answer)
            return
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        if answer is not None:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = _handle  # noqa: N815 - name of the library
    do_POST = _handle  # noqa: N815 - name of the library
    do_DELETE = _handle  # noqa: N815 - name of the library

    def _read_chunks(self) -> bytes:
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _send_lines(self, records: list[Json]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for record in records:
            line = json.dumps(record).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, path: str, params: dict[str, str], data: bytes) -> Reply:
        found = re.fullmatch(r"/graphs/([^/]+)/(.+)", path)
        if found is None:
            return 404, None
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"error": "invalid bearer token", "code": "unauthorized"}
        if found[1] != "team":
            return 404, {"error": f"graph '{found[1]}' not found", "code": "not_found"}
        is_lines = self.headers.get("Content-Type", "").startswith("application/x-ndjson")
        body: Json = json.loads(data) if data and not is_lines else {}
        team = self.server.team
        with team.lock:
            team.requests.append((self.command, found[2], {**params, **body}))
            try:
                return self._route(team, self.command, found[2], params, body, data)
            except KeyError as error:
                return 404, {"error": f"branch '{error.args[0]}' not found", "code": "not_found"}

    def _route(
        self, team: Team, method: str, path: str, params: dict[str, str], body: Json, data: bytes
    ) -> Reply:
        branch = body.get("branch") or params.get("branch") or "main"
        match method, path.split("/"):
            case "GET", ["branches"]:
                return 200, {"branches": sorted(team.heads)}
            case "POST", ["branches"]:
                base = team.head(body.get("from") or "main")
                if body["name"] in team.heads:
                    return 409, {"error": f"branch '{body['name']}' already exists", "code": "conflict"}
                team.heads[body["name"]] = base.id
                return 200, {
                    "uri": "u",
                    "from": body.get("from") or "main",
                    "name": body["name"],
                    "actor_id": ACTOR,
                }
            case "DELETE", ["branches", name]:
                del team.heads[unquote(name)]
                return 200, {"uri": "u", "name": unquote(name), "actor_id": ACTOR}
            case "POST", ["branches", "merge"]:
                return self._merge(team, body)
            case "GET", ["commits"]:
                return 200, {"commits": [item.to_json() for item in _history(team, branch)]}
            case "GET", ["commits", id_] if id_ in team.commits:
                return 200, team.commits[id_].to_json()
            case "GET", ["commits", id_]:
                return 404, {"error": f"commit '{id_}' not found", "code": "not_found"}
            case "GET", ["commits", id_, "changes"]:
                return 200, _changes(team.commits[id_])
            case "GET", ["schema"]:
                return 200, {"schema_source": SCHEMA}
            case "GET", ["queries"]:
                entry = {"name": "everybody", "tool_name": "everybody", "mutation": False, "params": []}
                return 200, {"queries": [entry]}
            case "POST", ["query"] | ["queries", "everybody"]:
                return 200, _rows(team, branch, body.get("snapshot"))
            case "POST", ["mutate"]:
                return 200, _mutate(team, branch, body)
            case "POST", ["mutate", "if-graph-commit"]:
                expected, actual = self.headers["Omnigraph-If-Graph-Commit"], team.heads[branch]
                if expected != actual:
                    failure = {"expected": expected, "actual": actual}
                    return 412, {"error": "the head has moved", "precondition_failure": failure}
                return 200, _mutate(team, branch, body)
            case "POST", ["export"]:
                if unknown := body.keys() - {"branch", "type_names"}:
                    return 400, {"error": f"unknown field `{min(unknown)}`", "code": "bad_request"}
                people = team.head(branch).people.values()
                return 200, [{"type": "Person", "data": person} for person in people]
            case "POST", ["load", "ndjson"]:
                return self._load(team, params, data)
        return 404, None

    def _merge(self, team: Team, body: Json) -> Reply:
        source, target = team.head(body["source"]), team.head(body.get("target") or "main")
        clash = [
            {
                "entity_kind": "node",
                "type_name": "Person",
                "entity_id": name,
                "kind": "divergent_update",
                "message": "changed on both sides",
            }
            for name, person in source.people.items()
            if name in target.people and target.people[name] != person
        ]
        if clash:
            return 409, {"error": "1 conflict", "code": "conflict", "merge_conflicts": clash}
        added = [name for name in source.people if name not in target.people]
        if added:
            team.commit(body.get("target") or "main", {**target.people, **source.people}, added, source.id)
        outcome = "merged" if added else "already_up_to_date"
        answer = {"source": body["source"], "target": body.get("target") or "main", "outcome": outcome}
        return 200, {**answer, "actor_id": ACTOR}

    def _load(self, team: Team, params: dict[str, str], data: bytes) -> Reply:
        records = [json.loads(line) for line in data.splitlines()]
        branch, base = params.get("branch", "main"), params.get("from")
        is_new = branch not in team.heads
        if is_new:
            team.heads[branch] = team.head(base or "").id
        made = team.add(branch, {record["data"]["name"]: record["data"] for record in records})
        return 200, {
            "branch": branch,
            "base_branch": base,
            "branch_created": is_new,
            "mode": params.get("mode", "merge"),
            "nodes": [{"name": "Person", "entities_loaded": len(records)}],
            "edges": [],
            "total_entities": len(records),
            "actor_id": ACTOR,
            "commit": made.to_json(),
        }


def _history(team: Team, branch: str) -> Iterator[Commit]:
    commit: Commit | None = team.head(branch)
    while commit is not None:
        yield commit
        commit = None if commit.parent is None else team.commits[commit.parent]


def _rows(team: Team, branch: str, snapshot: str | None) -> Json:
    commit = team.head(branch) if snapshot is None else team.commits[snapshot]
    people = sorted(commit.people.values(), key=lambda person: str(person["name"]))
    return {
        "query_name": "all",
        "target": {"branch": branch if snapshot is None else None, "snapshot": snapshot},
        "row_count": len(people),
        "columns": ["name", "age"],
        "rows": [{"name": person["name"], "age": person.get("age")} for person in people],
        "graph_commit_id": commit.id,
    }


def _mutate(team: Team, branch: str, body: Json) -> Json:
    params = body.get("params") or {}
    made = team.add(branch, {params["n"]: {"name": params["n"], "age": params.get("a")}})
    return {
        "branch": branch,
        "query_name": "add",
        "affected_nodes": 1,
        "affected_edges": 0,
        "actor_id": ACTOR,
        "commit": made.to_json(),
    }


def _changes(commit: Commit) -> Json:
    return {
        "cause": {
            "graph_commit_id": commit.id,
            "authored_branch": commit.branch,
            "authored_at": 1_700_000_000_000_000 + commit.version,
        },
        "changes": [
            {
                "kind": "node",
                "type": {"id": "1", "name": "Person"},
                "id": name,
                "op": "insert",
                "after": {"properties": commit.people[name]},
            }
            for name in commit.added
        ],
    }


class PublicServer(ThreadingHTTPServer):
    """A server on a free port."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.team = Team()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def public_server() -> Iterator[PublicServer]:
    """Run a server while the context is open."""
    with PublicServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
