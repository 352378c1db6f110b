"""`omnigraph embed`: the records that get vectors, unchanged records, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.api.embedding.embed_records import EmbedJob, embed_file
from omnigraph.api.embedding.embed_spec import EmbedSpec
from omnigraph.errors import InvalidInput
from omnigraph.search.embeddings.embedder import MockEmbedder
from tests.cli.running import run

SPEC = {"dimension": 4, "types": {"Doc": {"target": "v", "fields": ["title", "tags"]}}}
LINES = [
    '{"type":"Doc","data":{"slug":"a","title":"Tea"}}',
    '{"type": "Doc", "data": {"slug": "b", "title": "Steel", "tags": ["x", "y"], "v": [0.1, 0.2]}}',
    '{"type":"Doc","data":{"slug":"c"}}',
    '{"type":"City","data":{"slug":"a"}}',
    '{"edge":"Cites","from":"a","to":"b"}',
]


@pytest.fixture
def seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.jsonl").write_text("\n".join(LINES) + "\n\n")
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    manifest = {
        "graph": {"slug": "docs"},
        "sources": {"raw_seed": "./raw.jsonl"},
        "artifacts": {"embedded_seed": "./build/out.jsonl"},
        "embeddings": {"model": "m", **SPEC},
    }
    (tmp_path / "seed.yaml").write_text(json.dumps(manifest))
    return tmp_path


def embed(*args: str) -> dict[str, Any]:
    done = run("embed", *args, "--json")
    assert (done.code, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def vector(text: str) -> list[float]:
    found: list[float] = MockEmbedder().embed([text], 4, None)[0].tolist()
    return found


def test_what_lacks_a_vector_gets_one_and_the_rest_stays_as_it_stands(seeds: Path) -> None:
    found = embed("--seed", "seed.yaml")
    assert found == {
        "input": "raw.jsonl",
        "output": "build/out.jsonl",
        "records": 5,
        "selected_records": 4,
        "embedded_records": 1,
        "cleaned_records": 0,
        "mode": "fill_missing",
        "dimension": 4,
        "model": "mock",
    }
    lines = (seeds / "build" / "out.jsonl").read_text().splitlines()
    assert lines[1:] == LINES[1:]
    assert json.loads(lines[0])["data"] == {"slug": "a", "title": "Tea", "v": vector("Tea")}


def test_selected_records_are_embedded_anew(seeds: Path) -> None:
    found = embed(
        "--input", "raw.jsonl", "--output", "raw.jsonl", "--spec", "spec.json", "--select", "Doc:slug=b"
    )
    assert (found["mode"], found["selected_records"], found["embedded_records"]) == ("reembed_selected", 1, 1)
    lines = (seeds / "raw.jsonl").read_text().splitlines()
    assert [lines[0], *lines[2:]] == [LINES[0], *LINES[2:]]
    assert json.loads(lines[1])["data"]["v"] == vector("Steel\nx, y")


def test_all_vectors_of_a_type_are_made_anew_or_taken_out(seeds: Path) -> None:
    found = embed("--seed", "seed.yaml", "--reembed-all", "--type", "Doc")
    assert (found["mode"], found["selected_records"], found["embedded_records"]) == ("reembed_all", 3, 2)
    found = embed("--seed", "seed.yaml", "--clean", "--select", "slug=b", "--output", "clean.jsonl")
    assert (found["mode"], found["cleaned_records"], found["model"]) == ("clean", 1, "")
    assert [
        json.loads(line).get("data", {}).get("v") for line in (seeds / "clean.jsonl").read_text().splitlines()
    ] == [None] * 5


def test_what_was_embedded_loads_and_is_found(seeds: Path) -> None:
    schema = "node Doc { slug: String @key  title: String?  tags: [String]?  v: Vector(4)? }"
    (seeds / "s.pg").write_text(schema)
    (seeds / "raw.jsonl").write_text(LINES[0] + "\n" + '{"type":"Doc","data":{"slug":"b","title":"Steel"}}\n')
    embed("--seed", "seed.yaml")
    g = og.init(str(seeds / "g.omni"), schema)
    g.load(str(seeds / "build" / "out.jsonl"))
    ask = "query q($t: String) { match { $d: Doc } return { $d.slug } order { nearest($d.v, $t) } limit 1 }"
    done = run("query", "-e", ask, "--params", '{"t": "Steel"}', "--store", "g.omni", "--format", "csv")
    assert done.stdout.splitlines() == ["d.slug", "b"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "pass --seed"),
        (("--seed", "seed.yaml", "--clean", "--reembed-all"), "cannot be combined with --reembed-all"),
        (("--seed", "seed.yaml", "--spec", "spec.json"), "cannot be combined with --input"),
    ],
    ids=str,
)
def test_a_command_that_says_too_little_or_too_much_is_refused(
    seeds: Path, args: tuple[str, ...], text: str
) -> None:
    done = run("embed", *args)
    assert done.code == 2
    assert text in done.stderr
    assert not (seeds / "build").exists()


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("raw.jsonl", "{", "invalid JSON at line 1"),
        ("raw.jsonl", LINES[0] + "\n[]\n", "line 2: a record must be one JSON object"),
        ("raw.jsonl", '{"type":"Doc"}\n', "line 1: a record with a type needs the object `data`"),
        ("raw.jsonl", b"\xff", "invalid UTF-8"),
        ("seed.yaml", "sources: {raw_seed: 5}", "`sources.raw_seed` must be the path"),
        ("seed.yaml", "{}", "needs `sources.raw_seed`"),
        ("seed.yaml", "sources: {raw_seed: raw.jsonl}", "needs `embeddings`"),
        ("seed.yaml", "sources: {raw_seed: gone.jsonl}\nembeddings: " + json.dumps(SPEC), "no such file"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_told_and_leaves_no_file(
    seeds: Path, name: str, content: str | bytes, text: str
) -> None:
    (seeds / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run("embed", "--seed", "seed.yaml")
    assert done.code == 1
    assert text in done.stderr
    assert list((seeds / "build").glob("*")) == []


@pytest.mark.parametrize("select", ["slug", "=x", ":slug=x", "Doc:=x"])
@pytest.mark.usefixtures("seeds")
def test_a_selector_is_a_field_and_a_value(select: str) -> None:
    done = run("embed", "--seed", "seed.yaml", "--select", select)
    assert done.code == 1
    assert "invalid selector" in done.stderr


@pytest.mark.usefixtures("seeds")
def test_a_type_without_a_vector_is_refused_by_name() -> None:
    done = run("embed", "--seed", "seed.yaml", "--type", "Dok")
    assert "the embedding spec has no type 'Dok'" in done.stderr


@pytest.mark.parametrize(
    "spec",
    [
        [],
        {"dimension": 0, "types": SPEC["types"]},
        {"dimension": True, "types": SPEC["types"]},
        {"dimension": 4, "types": {}},
        {"dimension": 4, "types": {"Doc": {"target": "v", "fields": []}}},
        {"dimension": 4, "types": {"Doc": {"fields": ["a"]}}},
    ],
    ids=str,
)
def test_a_spec_that_is_none_is_refused(spec: Any) -> None:
    with pytest.raises(InvalidInput, match="embedding spec"):
        EmbedSpec.of(spec)


def test_any_number_of_records_goes_through_in_order(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text(
        "".join(
            json.dumps({"type": "Doc", "data": {"n": n, "title": "é" * (n % 3)}}) + "\n" for n in range(9_000)
        )
    )
    done = embed_file(EmbedJob(source, target, EmbedSpec.of(SPEC)), MockEmbedder())
    assert (done.records, done.embedded_records) == (9_000, 6_000)
    found = [json.loads(line)["data"] for line in target.read_text(encoding="utf-8").splitlines()]
    assert [item["n"] for item in found] == list(range(9_000))
    assert [item["n"] for item in found if "v" not in item] == list(range(0, 9_000, 3))
