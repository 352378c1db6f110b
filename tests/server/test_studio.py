"""The routes that the Studio uses besides the others, and its files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, NotFound
from omnigraph.protocol import language_responses, responses
from tests.server.running import Running, error_body, host, running, success_body
from tests.support.waiting import HANG


@pytest.fixture(scope="module")
def with_studio() -> Iterator[Running]:
    """Return a server that serves the Studio. It has no tokens."""
    with running(host(), studio=True) as found:
        yield found


def get(server: Running, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", headers=headers, timeout=HANG, verify=False)


# --- files ------------------------------------------------------------------------------------------------


def test_studio_page_allows_nothing_inline_and_a_new_nonce_for_each_response(with_studio: Running) -> None:
    first, second = get(with_studio, "/studio/"), get(with_studio, "/studio/")
    assert first.status_code == 200
    policy = first.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "unsafe" not in policy
    assert policy != second.headers["content-security-policy"]
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert f'content="{nonce}"' in first.text
    assert "{{" not in first.text


def test_studio_without_slash_redirects_to_its_folder(with_studio: Running) -> None:
    found = get(with_studio, "/studio")
    assert (found.status_code, found.headers["location"]) == (308, "studio/")


def test_studio_file_is_sent_again_only_if_it_changed(with_studio: Running) -> None:
    first = get(with_studio, "/studio/studio.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = get(with_studio, "/studio/studio.js", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["no.js", "..%2fsite.py", "%2e%2e%2fsite.py", ".x.js", "assets", "site.py"])
def test_studio_serves_only_its_own_files(with_studio: Running, name: str) -> None:
    assert get(with_studio, f"/studio/{name}").status_code == 404


def test_server_without_the_option_does_not_serve_the_studio(guarded: Running) -> None:
    assert "--studio" in error_body(get(guarded, "/studio/"), 404)["error"]
    assert "--studio" in error_body(get(guarded, "/studio/studio.js"), 404)["error"]


# --- permissions ------------------------------------------------------------------------------------------


def test_permissions_are_those_of_the_policy_for_the_branches(guarded: Running) -> None:
    with guarded.client("bob") as client:
        on_main = success_body(client.get("/permissions"), responses.PermissionsOutput)
        on_other = success_body(client.get("/permissions?branch=dev"), responses.PermissionsOutput)
    assert on_main["actor_id"] == "bob"
    assert [name for name, allowed in on_main["actions"].items() if allowed] == ["read", "invoke_query"]
    assert [name for name, allowed in on_other["actions"].items() if allowed] == [
        "read",
        "change",
        "invoke_query",
    ]
    with guarded.client("eve") as client:
        assert not any(client.get("/permissions").json()["actions"].values())
    with guarded.client("ann") as client:
        merge = client.get("/permissions?branch=dev&target=main").json()
    assert (merge["branch"], merge["target"], merge["actions"]["branch_merge"]) == ("dev", "main", True)


def test_permissions_of_a_server_without_tokens_are_all(client: httpx.Client) -> None:
    found = success_body(client.get("/permissions"), responses.PermissionsOutput)
    assert (found["actor_id"], all(found["actions"].values())) == (None, True)


# --- types and lint ---------------------------------------------------------------------------------------


def test_schema_types_describe_nodes_and_edges(client: httpx.Client) -> None:
    found = success_body(client.get("/schema/types"), language_responses.SchemaTypesOutput)
    (person,), (knows,) = found["nodes"], found["edges"]
    assert (person["name"], person["key"]) == ("Person", ["name"])
    assert [(item["name"], item["type"]) for item in person["properties"]] == [
        ("age", "I32?"),
        ("name", "String"),
    ]
    assert (knows["source"], knows["target"], knows["cardinality"]) == (
        "Person",
        "Person",
        {"min": 0, "max": None},
    )


def test_lint_reports_errors_with_positions_and_describes_the_correct_queries(client: httpx.Client) -> None:
    ok = "query ok($n: String) { match { $p: Person { name: $n } } return { $p } }"
    text = f"// grün\n{ok}\nquery bad() {{ match {{ $p: Persn }} return {{ $p }} }}"
    found = success_body(client.post("/lint", json={"query": text}), language_responses.LintOutput)
    assert not found["ok"]
    (problem,) = found["diagnostics"]
    assert (problem["code"], problem["line"]) == ("T1", 3)
    assert text.encode()[problem["start"] : problem["end"]] == b"Persn"
    (query,) = found["queries"]
    assert query["params"] == [{"name": "n", "kind": "string", "nullable": False}]


def test_lint_reports_syntax_errors_of_queries_and_schemas(client: httpx.Client) -> None:
    for body in ({"query": "query broken( {"}, {"schema_source": "node Person { name String }"}):
        found = success_body(client.post("/lint", json=body), language_responses.LintOutput)
        assert [item["severity"] for item in found["diagnostics"]] == ["error"]
        assert found["queries"] == []
    good = {"schema_source": "node Person { name: String @key }"}
    assert success_body(client.post("/lint", json=good), language_responses.LintOutput)["ok"]


def test_lint_of_no_text_or_two_is_rejected(client: httpx.Client) -> None:
    for body in ({}, {"query": "", "schema_source": ""}):
        assert "exactly one" in error_body(client.post("/lint", json=body), 400)["error"]


def test_lint_requires_permission_to_read(guarded: Running) -> None:
    with guarded.client("eve") as client:
        error_body(client.post("/lint", json={"query": ""}), 403)


# --- neighbors --------------------------------------------------------------------------------------------

ROADS = """\
node City { name: String @key  seal: Blob? }
node River { name: String @key }
edge Road: City -> City { lanes: I32? }
edge Crosses: River -> City
"""


@pytest.fixture(scope="module")
def cities() -> og.Graph:
    """Return a graph with a self-loop and parallel edges."""
    graph = og.init("memory://studio-cities", ROADS)
    graph.load(
        [
            *({"type": "City", "data": {"name": name}} for name in ("Bern", "Thun", "Biel")),
            {"type": "River", "data": {"name": "Aare"}},
            {"edge": "Road", "from": "Bern", "to": "Thun", "data": {"lanes": 2}},
            {"edge": "Road", "from": "Bern", "to": "Thun", "data": {"lanes": 4}},
            {"edge": "Road", "from": "Biel", "to": "Bern"},
            {"edge": "Road", "from": "Bern", "to": "Bern"},
            {"edge": "Crosses", "from": "Aare", "to": "Bern"},
        ]
    )
    return graph


def ends(found: dict[str, object]) -> list[tuple[str, str, str]]:
    neighbors = found["neighbors"]
    assert isinstance(neighbors, list)
    return sorted((item["edge"]["type"], item["edge"]["direction"], item["node"]["id"]) for item in neighbors)


def test_neighbors_follow_both_directions_and_list_a_self_loop_once(cities: og.Graph) -> None:
    found = cities.neighbors("City", "Bern")
    assert ends(found) == [
        ("Crosses", "in", "Aare"),
        ("Road", "in", "Biel"),
        ("Road", "out", "Bern"),
        ("Road", "out", "Thun"),
        ("Road", "out", "Thun"),
    ]
    lanes = [
        item["edge"]["properties"]["lanes"] for item in found["neighbors"] if item["node"]["id"] == "Thun"
    ]
    assert sorted(lanes) == [2, 4]
    assert "seal" not in found["neighbors"][0]["node"]["properties"]


def test_neighbors_count_what_the_limit_leaves_out(cities: og.Graph) -> None:
    found = cities.neighbors("City", "Bern", edges=["road"], direction="out", limit=1)
    assert len(found["neighbors"]) == 1
    assert found["counts"] == [{"edge": "Road", "direction": "out", "count": 3}]
    assert ends(cities.neighbors("City", "Bern", edges=["Road"], direction="in")) == [
        ("Road", "in", "Bern"),
        ("Road", "in", "Biel"),
    ]


def test_neighbors_of_another_state_are_those_of_that_state(cities: og.Graph) -> None:
    cities.branches.create("fewer")
    cities.mutate('query cut() { delete City where name = "Thun" }', branch="fewer")
    assert len(cities.neighbors("City", "Bern")["neighbors"]) == 5
    assert len(cities.neighbors("City", "Bern", branch="fewer")["neighbors"]) == 3


def test_neighbors_of_unknown_names_say_what_is_unknown(cities: og.Graph) -> None:
    with pytest.raises(NotFound, match="there is no City 'Rome'"):
        cities.neighbors("City", "Rome")
    with pytest.raises(NotFound, match="unknown type 'Citi'"):
        cities.neighbors("Citi", "Bern")
    with pytest.raises(NotFound, match="unknown edge type 'rode'"):
        cities.neighbors("City", "Bern", edges=["rode"])
    with pytest.raises(InvalidInput, match="edge type"):
        cities.neighbors("Road", "x")


def test_neighbors_over_http_are_those_of_the_library(client: httpx.Client) -> None:
    record = '{"edge":"Knows","from":"Ann","to":"Bob"}\n'
    headers = {"Content-Type": "application/x-ndjson"}
    assert client.post("/load/ndjson?mode=append", content=record, headers=headers).status_code == 200
    found = success_body(client.get("/neighbors?type=Person&id=Ann"), responses.NeighborsOutput)
    assert ends(found) == [("Knows", "out", "Bob")]
    url = str(client.base_url)
    remote = og.connect(url.rpartition("/graphs/")[0], url.rpartition("/graphs/")[2].strip("/"))
    assert remote.neighbors("Person", "Bob", edges=["Knows"], limit=5) == {
        **client.get("/neighbors?type=Person&id=Bob").json()
    }
    error_body(client.get("/neighbors?type=Person&id=Nobody"), 404)
    error_body(client.get("/neighbors?type=Person&id=Ann&limit=0"), 400)


def test_neighbors_require_permission_to_read(guarded: Running) -> None:
    with guarded.client("eve") as client:
        error_body(client.get("/neighbors?type=Person&id=Ann"), 403)


def test_built_files_are_complete_and_small() -> None:
    assets = Path(og.__file__).parent / "studio" / "assets"
    names = {item.name for item in assets.iterdir()}
    assert names == {"index.html", "studio.js", "studio.css", "icon.svg", "licenses.txt", "sources.sha256"}
    assert sum(item.stat().st_size for item in assets.iterdir()) < 1_500_000


def test_built_files_are_those_of_the_sources() -> None:
    root = Path(__file__).parents[2] / "studio"
    names = [item.relative_to(root).as_posix() for item in (root / "src").rglob("*") if item.is_file()]
    digest = hashlib.sha256()
    for name in sorted([*names, "build.mjs", "package-lock.json"]):
        digest.update(f"{name}\0".encode() + (root / name).read_bytes())
    built = Path(og.__file__).parent / "studio" / "assets" / "sources.sha256"
    assert built.read_text(encoding="utf-8").strip() == digest.hexdigest(), "run make studio"
