"""A server whose graphs are damaged or gone: readiness, error responses, and graphs that are not created again."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import omnigraph as og
from omnigraph.api.hosting.hosting_config import read_hosting
from omnigraph.errors import InvalidInput, StorageError
from omnigraph.protocol.error_output import ErrorOutput
from omnigraph.server.hosted_graphs import ServerResources, open_graphs
from omnigraph.server.http.authentication import TokenRegistry
from omnigraph.server.logs import LOGGER
from omnigraph.store.lance.lance_files import version_file
from tests.server.running import ALL, SCHEMA, TOKENS, Running, running
from tests.support.waiting import HANG, wait_until

ADD_CITY = 'query add() { insert City { name: "x" } }'
KNOWN = TokenRegistry.of(TOKENS)
CITIES = "query cities() { match { $c: City } return { $c.name } }"


def data_file(root: Path, key: str = "node:Person") -> Path:
    with og.open(str(root), "r") as graph:
        snapshot = graph.snapshot()
        pin = snapshot.pin(key)
        fragment = snapshot.tables.open(pin.path, pin.version).get_fragments()[0]
        return root / pin.path / "data" / fragment.metadata.files[0].path


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A configuration that declares a graph on a volume of its own."""
    (tmp_path / "team.pg").write_text(f"{SCHEMA}node City {{ name: String @key }}\n")
    (tmp_path / "volume").mkdir()
    document = {"graphs": {"team": {"uri": "volume/team.omni", "schema": "team.pg"}}}
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(document))
    return tmp_path


def host(site: Path, tokens: TokenRegistry | None = None, **environment: str) -> ServerResources:
    return open_graphs(read_hosting(site / "serve.yaml"), tokens or TokenRegistry(), environment=environment)


@pytest.fixture
def server(site: Path) -> Iterator[Running]:
    resources = host(site)
    resources.graphs["team"].graph.load(
        [{"type": "Person", "data": {"name": "Ann"}}, {"type": "City", "data": {"name": "Oslo"}}]
    )
    # A process keeps the rows of its own small writes in memory, and answers without the damaged file.
    resources.close()
    resources = host(site)
    with running(resources) as found:
        yield found
    resources.close()


def ready(url: str, **headers: str) -> tuple[int, Any]:
    found = httpx.get(f"{url}/readyz", headers=headers, timeout=HANG)
    return found.status_code, found.json()


def query(server: Running, text: str) -> httpx.Response:
    with server.client() as client:
        return client.post("/query", json={"query": text})


def test_damaged_file_makes_the_graph_unready_until_it_is_restored(server: Running, site: Path) -> None:
    assert ready(server.url) == (200, {"status": "ready"})
    file = data_file(site / "volume" / "team.omni")
    data = file.read_bytes()
    file.unlink()
    wait_until(lambda: ready(server.url)[0] == 503)
    reason = ready(server.url)[1]["unready_graphs"]["team"]
    assert "Person is damaged" in reason
    assert file.name in reason
    assert httpx.get(f"{server.url}/healthz", timeout=HANG).status_code == 200
    file.write_bytes(data)
    wait_until(lambda: ready(server.url)[0] == 200)


def test_query_of_damaged_type_is_an_internal_error_that_is_logged(
    server: Running, site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = site / "volume" / "team.omni"
    file = data_file(root)
    file.unlink()
    with caplog.at_level(logging.ERROR, LOGGER.name):
        found = query(server, ALL)
    body = found.json()
    ErrorOutput.model_validate(body)
    assert (found.status_code, body["code"]) == (500, "internal")
    failure = body["storage_failure"]
    assert (failure["kind"], failure["reason"], failure["type_name"]) == ("permanent", "damaged", "Person")
    assert failure["file"] == str(file.relative_to(root))
    assert failure["graph_branch"] == "main"
    assert str(site) not in found.text
    (record,) = [item for item in caplog.records if item.getMessage() == "request failed"]
    fields = record.__dict__["fields"]
    assert fields["request_id"] == found.headers["X-Request-Id"]
    assert "Person is damaged" in fields["error"]
    assert query(server, CITIES).status_code == 200


def test_damage_that_only_a_read_finds_is_reported_until_the_file_changes(
    server: Running, site: Path
) -> None:
    file = data_file(site / "volume" / "team.omni")
    data = file.read_bytes()
    file.write_bytes(b"\xa5" * (len(data) - 16) + data[-16:])
    assert query(server, ALL).status_code == 500
    assert ready(server.url)[0] == 503
    file.write_bytes(data)
    wait_until(lambda: ready(server.url)[0] == 200)


def test_vanished_volume_is_reported_and_the_server_recovers(server: Running, site: Path) -> None:
    assert query(server, CITIES).status_code == 200
    volume, aside = site / "volume", site / "aside"
    volume.rename(aside)
    volume.mkdir()
    wait_until(lambda: ready(server.url)[0] == 503)
    assert "the storage of the graph is gone" in ready(server.url)[1]["unready_graphs"]["team"]
    found = query(server, CITIES)
    assert (found.status_code, found.json()["storage_failure"]["reason"]) == (500, "vanished")
    with server.client() as client:
        assert client.post("/mutate", json={"query": ADD_CITY}).status_code == 500
    assert not any(volume.iterdir())
    volume.rmdir()
    aside.rename(volume)
    wait_until(lambda: ready(server.url)[0] == 200)
    assert query(server, CITIES).status_code == 200


def test_readyz_without_token_hides_types_and_files(site: Path) -> None:
    host(site).close()
    resources = host(site, KNOWN)
    with running(resources) as found:
        shutil.rmtree(site / "volume" / "team.omni" / "__manifest")
        wait_until(lambda: ready(found.url)[0] == 503)
        assert ready(found.url)[1]["unready_graphs"] == {"team": "the storage is gone; see the server log"}
        known = ready(found.url, Authorization=f"Bearer {TOKENS['ann']}")[1]["unready_graphs"]["team"]
        assert "mount the volume again" in known
    resources.close()


# --- graphs that have existed -----------------------------------------------------------------------------


def test_server_on_unmounted_volume_refuses_to_create_the_graph_again(site: Path) -> None:
    host(site).close()
    shutil.rmtree(site / "volume" / "team.omni")
    with pytest.raises(InvalidInput, match="no graph can be served") as caught:
        host(site)
    assert "has been served before and does not exist any more" in str(caught.value.hint)
    assert not any((site / "volume").iterdir())


def test_vanished_graph_beside_others_is_quarantined_and_makes_the_server_unready(site: Path) -> None:
    document = {
        "graphs": {name: {"uri": f"volume/{name}.omni", "schema": "team.pg"} for name in ("team", "other")}
    }
    (site / "serve.yaml").write_text(yaml.safe_dump(document))
    host(site).close()
    shutil.rmtree(site / "volume" / "team.omni")
    resources = host(site)
    assert list(resources.graphs) == ["other"]
    with running(resources) as found:
        status, body = ready(found.url)
        assert status == 503
        assert "has been served before" in body["unready_graphs"]["team"]
    resources.close()


def test_graph_is_created_again_after_its_marker_is_removed(site: Path) -> None:
    host(site).close()
    shutil.rmtree(site / "volume" / "team.omni")
    (marker,) = (site / "__served").iterdir()
    assert json.loads(marker.read_text())["state"] == "served"
    marker.unlink()
    host(site).close()
    assert (site / "volume" / "team.omni").is_dir()


def test_graph_is_created_when_an_earlier_creation_did_not_finish(site: Path) -> None:
    host(site).close()
    shutil.rmtree(site / "volume" / "team.omni")
    (marker,) = (site / "__served").iterdir()
    marker.write_text(json.dumps({"state": "creating"}))
    host(site).close()
    assert (site / "volume" / "team.omni").is_dir()


def test_graph_at_a_new_address_is_created(site: Path) -> None:
    host(site).close()
    text = (site / "serve.yaml").read_text().replace("team.omni", "moved.omni")
    (site / "serve.yaml").write_text(text)
    host(site).close()
    assert (site / "volume" / "moved.omni").is_dir()


def test_graph_is_not_created_without_a_place_for_its_marker(site: Path) -> None:
    (site / "state").write_text("a file")
    with pytest.raises(InvalidInput) as caught:
        host(site, OMNIGRAPH_STATE=str(site / "state"))
    assert "its marker cannot be written" in str(caught.value.hint)
    assert not any((site / "volume").iterdir())
    host(site, OMNIGRAPH_STATE=str(site / "elsewhere")).close()
    assert (site / "elsewhere" / "__served").is_dir()


def test_health_check_reports_a_missing_version_file_of_a_branch(tmp_path: Path) -> None:
    with og.init(str(tmp_path / "graph"), SCHEMA) as graph:
        graph.load([{"type": "Person", "data": {"name": "Ann"}}])
        check = graph.health_check()
        assert check.find_problem() is None
        pin = graph.snapshot().pin("node:Person")
        (tmp_path / "graph" / pin.path / version_file(pin.version)).unlink()
        problem = check.find_problem()
        assert isinstance(problem, StorageError)
        assert problem.details["reason"] == "damaged"
