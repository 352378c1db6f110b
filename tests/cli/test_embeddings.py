"""`omnigraph embed status` and `omnigraph embed refresh`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.running import run

SCHEMA = 'node Doc { slug: String @key  v: Vector(2)? @embed("slug", model="MODEL", provider="mock") }'


@pytest.fixture
def uri(tmp_path: Path) -> str:
    graph = og.init(tmp_path / "g.omni", SCHEMA.replace("MODEL", "a"))
    graph.load({"Doc": [{"slug": str(number)} for number in range(3)]})
    graph.schema.apply(SCHEMA.replace("MODEL", "b"))
    return str(tmp_path / "g.omni")


def test_embed_status_and_refresh_print_and_commit_the_stale_vectors(uri: str) -> None:
    before = run("embed", "status", uri)
    line = "Doc.v: 0 current, 3 stale, 0 missing (model b, dimension 2, provider mock); 3 of model a\n"
    assert (before.code, before.stdout) == (0, line)
    done = run("embed", "refresh", uri, "--batch-rows", "2", "--as", "ann")
    assert (done.code, done.stdout) == (0, "computed 3 vectors in 2 commits\n")
    after = json.loads(run("embed", "status", uri, "--json").stdout)["embeddings"]
    assert [(item["current"], item["models"]) for item in after] == [(3, {"b": 3})]
    again = json.loads(run("embed", "refresh", uri, "--json").stdout)
    assert (again["computed"], again["commits"]) == (0, [])
    assert og.open(uri).commits()[0].actor == "ann"


def test_embed_status_of_an_unknown_type_and_a_graph_without_providers(uri: str, tmp_path: Path) -> None:
    assert "unknown node type 'Nope'" in run("embed", "status", uri, "--type", "Nope").stderr
    og.init(tmp_path / "plain.omni", "node City { name: String @key }")
    assert (
        run("embed", "status", str(tmp_path / "plain.omni")).stdout
        == "no property has an embedding provider\n"
    )


def test_embed_of_a_file_refuses_options_of_a_graph(tmp_path: Path) -> None:
    done = run("--store", str(tmp_path), "embed", "--seed", "seed.yaml")
    assert done.code != 0
    assert "`embed` does not use a graph; --store does not apply." in done.stderr
