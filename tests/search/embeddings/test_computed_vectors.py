"""Vectors that writes compute: every way to write rows, what is sent to the provider, and what refuses a write."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InvalidInput, StorageError
from omnigraph.lang.schema import Embed
from omnigraph.load.spool import LoadLimits
from omnigraph.search.embeddings.embedding_records import embedding_record
from tests.support.places import fresh_memory

SCHEMA = """
node Doc {
  slug: String @key
  body: String?
  other: String?
  v: Vector(3)? @embed("body", model="small", provider="p")
}
"""
REQUIRED = SCHEMA.replace("Vector(3)?", "Vector(3)")


@dataclass
class Letters:
    """A provider whose vector of a text tells its length and its first letter; it refuses some texts."""

    batches: list[list[str]] = field(default_factory=list)
    models: list[str | None] = field(default_factory=list)
    refused: dict[str, Exception] = field(default_factory=dict)

    def embed(self, texts: Sequence[str], _: int, model: str | None) -> Any:
        self.batches.append(list(texts))
        self.models.append(model)
        for text in texts:
            if text in self.refused:
                raise self.refused[text]
        return [vector_of(text) for text in texts]

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]


def vector_of(text: str) -> list[float]:
    return [float(len(text)), float(ord(text[0])), 1.0]


def record(text: str, model: str = "small") -> str:
    return embedding_record(Embed("body", model, "p"), text)


def stored(g: Any) -> dict[str, tuple[Any, Any]]:
    """The vector and the record of each document."""
    rows = g.query(
        "query q() { match { $d: Doc } return { $d.slug as slug, $d.v as v, $d.v_embedded as record } }"
    ).rows()
    return {row["slug"]: (row["v"], row["record"]) for row in rows}


def vectors(g: Any) -> dict[str, Any]:
    return {slug: vector for slug, (vector, _) in stored(g).items()}


def stored_vector(g: Any) -> Any:
    return g.get("Doc", "a")["v"]


# --- loads ------------------------------------------------------------------------------------------------


@pytest.fixture
def provider() -> Letters:
    return Letters()


@pytest.fixture
def graph(provider: Letters) -> Any:
    return og.init(fresh_memory(), SCHEMA, embedder=provider)


def test_load_without_vectors_computes_one_for_each_text(graph: Any, provider: Letters) -> None:
    texts = {f"d{number}": "abcde"[number % 5] * (number % 7 + 1) for number in range(60)}
    graph.load({"Doc": [{"slug": slug, "body": text} for slug, text in texts.items()]})
    assert vectors(graph) == {slug: vector_of(text) for slug, text in texts.items()}
    # Equal texts are sent once, with the model of the schema.
    assert sorted(provider.texts) == sorted(set(texts.values()))
    assert provider.models == ["small"]


def test_load_with_a_vector_keeps_it_and_sends_nothing(graph: Any, provider: Letters) -> None:
    graph.load({"Doc": [{"slug": "a", "body": "tea", "v": [7, 8, 9]}, {"slug": "b", "v": [1, 2, 3]}]})
    assert stored(graph) == {"a": ([7, 8, 9], record("tea")), "b": ([1, 2, 3], "small given")}
    assert provider.texts == []


def test_load_without_a_text_leaves_the_vector_null(graph: Any, provider: Letters) -> None:
    graph.load({"Doc": [{"slug": "a"}]})
    assert stored(graph) == {"a": (None, None)}
    assert provider.texts == []


@pytest.mark.parametrize("fmt", ["rows", "ndjson", "csv", "table"])
def test_load_of_any_source_computes_the_vectors(graph: Any, tmp_path: Path, fmt: str) -> None:
    import pyarrow as pa

    source: Any = {"Doc": [{"slug": "a", "body": "tea"}]}
    if fmt == "ndjson":
        source = tmp_path / "d.jsonl"
        source.write_text('{"type": "Doc", "data": {"slug": "a", "body": "tea"}}\n')
    elif fmt == "csv":
        file = tmp_path / "d.csv"
        file.write_text("slug,body\na,tea\n")
        source = {"Doc": file}
    elif fmt == "table":
        source = {"Doc": pa.table({"slug": ["a"], "body": ["tea"]})}
    graph.load(source)
    assert stored(graph) == {"a": (vector_of("tea"), record("tea"))}


def test_load_beyond_the_memory_limit_computes_the_vector_of_each_row(
    graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoadLimits.__init__, "__defaults__", (3, 1 << 20, 4, 1 << 30))
    texts = {f"d{number}": "abc"[number % 3] * (number + 1) for number in range(20)}
    graph.load({"Doc": [{"slug": slug, "body": text} for slug, text in texts.items()]})
    assert vectors(graph) == {slug: vector_of(text) for slug, text in texts.items()}


def test_load_with_mode_merge_of_another_text_replaces_the_vector(graph: Any) -> None:
    graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    graph.load({"Doc": [{"slug": "a", "body": "steel"}]}, mode="merge")
    assert stored(graph) == {"a": (vector_of("steel"), record("steel"))}
    graph.load({"Doc": [{"slug": "a"}]}, mode="merge")
    assert stored(graph) == {"a": (None, None)}


def test_load_with_mode_patch_computes_only_the_vectors_of_given_texts(graph: Any, provider: Letters) -> None:
    graph.load({"Doc": [{"slug": slug, "body": slug} for slug in "abcd"]})
    provider.batches.clear()
    graph.load(
        {
            "Doc": [
                {"slug": "a", "body": "tea"},
                {"slug": "b", "other": "x"},
                {"slug": "c", "v": [1, 2, 3]},
                {"slug": "d", "body": None},
            ]
        },
        mode="patch",
    )
    assert provider.texts == ["tea"]
    assert stored(graph) == {
        "a": (vector_of("tea"), record("tea")),
        "b": (vector_of("b"), record("b")),
        "c": ([1, 2, 3], "small given"),
        "d": (None, None),
    }


def test_load_of_operations_computes_no_vector_for_deletes(graph: Any, provider: Letters) -> None:
    graph.load({"Doc": [{"slug": slug, "body": slug} for slug in "ab"]})
    provider.batches.clear()
    rows = [{"slug": "a", "body": "x", "op": "D"}, {"slug": "b", "body": "yy", "op": "U"}]
    graph.load({"Doc": rows}, mode="merge", op_column="op")
    assert (vectors(graph), provider.texts) == ({"b": vector_of("yy")}, ["yy"])


def test_load_of_an_export_keeps_vectors_and_records(graph: Any, tmp_path: Path) -> None:
    graph.load({"Doc": [{"slug": "a", "body": "tea"}, {"slug": "b", "v": [1, 2, 3]}]})
    graph.export(tmp_path / "g.jsonl")
    other = og.init(fresh_memory(), SCHEMA)
    other.load(tmp_path / "g.jsonl")
    assert stored(other) == stored(graph)


def test_load_with_a_required_vector_needs_the_text_or_the_vector(provider: Letters) -> None:
    graph = og.init(fresh_memory(), REQUIRED, embedder=provider)
    graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    assert vectors(graph) == {"a": vector_of("tea")}
    with pytest.raises(ConstraintViolation, match="non-nullable property 'v'"):
        graph.load({"Doc": [{"slug": "b"}]})


# --- mutations --------------------------------------------------------------------------------------------


def test_insert_and_update_statements_send_their_texts_together(graph: Any, provider: Letters) -> None:
    graph.mutate(
        """
        query q($t: String) {
          insert Doc { slug: "a", body: $t }
          insert Doc { slug: "b", body: "steel" }
          insert Doc { slug: "c", body: "iron", v: [1.0, 2.0, 3.0] }
          insert Doc { slug: "d" }
          update Doc set { body: "ore" } where slug = "b"
        }
        """,
        {"t": "tea"},
    )
    assert provider.batches == [["tea", "steel", "ore"]]
    assert stored(graph) == {
        "a": (vector_of("tea"), record("tea")),
        "b": (vector_of("ore"), record("ore")),
        "c": ([1, 2, 3], record("iron")),
        "d": (None, None),
    }


def test_update_of_the_text_replaces_the_vector_and_of_other_properties_keeps_it(
    graph: Any, provider: Letters
) -> None:
    graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    graph.mutate('query q() { update Doc set { other: "x" } where slug = "a" }')
    assert stored(graph) == {"a": (vector_of("tea"), record("tea"))}
    graph.mutate('query q() { update Doc set { body: "steel" } where slug = "a" }')
    assert stored(graph) == {"a": (vector_of("steel"), record("steel"))}
    assert provider.texts == ["tea", "steel"]


def test_update_of_the_vector_keeps_it_and_records_the_stored_text(graph: Any, provider: Letters) -> None:
    graph.load({"Doc": [{"slug": "a", "body": "tea"}, {"slug": "b"}]})
    graph.mutate('query q() { update Doc set { v: [4.0, 5.0, 6.0] } where slug != "z" }')
    assert stored(graph) == {"a": ([4, 5, 6], record("tea")), "b": ([4, 5, 6], "small given")}
    assert provider.texts == ["tea"]


def test_batch_computes_the_vectors_of_all_its_rows(graph: Any) -> None:
    with graph.batch() as batch:
        batch.merge("Doc", [{"slug": "a", "body": "tea"}])
        batch.patch("Doc", [{"slug": "b", "body": "steel"}])
    assert vectors(graph) == {"a": vector_of("tea"), "b": vector_of("steel")}


# --- providers --------------------------------------------------------------------------------------------


def test_write_without_a_provider_is_refused_and_needs_none_with_vectors() -> None:
    graph = og.init(fresh_memory(), SCHEMA)
    with pytest.raises(InvalidInput, match="no embedding provider 'p'"):
        graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    with pytest.raises(InvalidInput, match="no embedding provider 'p'"):
        graph.mutate('query q() { insert Doc { slug: "a", body: "tea" } }')
    assert len(graph.commits()) == 1
    graph.load({"Doc": [{"slug": "a", "body": "tea", "v": [1, 2, 3]}]})
    assert vectors(graph) == {"a": [1, 2, 3]}


def test_declaration_without_a_provider_computes_nothing(provider: Letters) -> None:
    graph = og.init(fresh_memory(), SCHEMA.replace(', provider="p"', ""), embedder=provider)
    graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    assert stored_vector(graph) is None
    assert provider.texts == []


@pytest.mark.parametrize(
    "given",
    [
        lambda texts: [vector_of(text) for text in texts],
        lambda texts, _dim, _model: [vector_of(text) for text in texts],
        {"p": lambda texts: [vector_of(text) for text in texts], "q": lambda _: None},
        {"default": lambda texts: [vector_of(text) for text in texts]},
        {"p": Letters()},
    ],
    ids=["texts", "texts, dim, model", "registry", "default", "object"],
)
def test_open_with_any_form_of_embedder_computes_vectors(given: Any) -> None:
    graph = og.init(fresh_memory(), SCHEMA, embedder=given)
    graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    assert vectors(graph) == {"a": vector_of("tea")}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"q": Letters()}, "no embedding provider 'p'"),
        (lambda texts: [[1.0, 2.0]] * len(texts), r"shape \(1, 2\), expected \(1, 3\)"),
        (lambda _: [], "expected"),
        (lambda _: [[1.0, float("nan"), 0.0]], "not finite"),
        (lambda _: ["x"], "not vectors"),
    ],
    ids=["unknown name", "dimension", "count", "nan", "no vectors"],
)
def test_write_with_an_unusable_embedder_is_refused(given: Any, text: str) -> None:
    graph = og.init(fresh_memory(), SCHEMA, embedder=given)
    with pytest.raises(InvalidInput, match=text):
        graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    assert len(graph.commits()) == 1


@pytest.mark.parametrize("given", [5, lambda: None, {"p": "x"}], ids=["number", "no parameter", "text"])
def test_open_with_no_embedder_in_the_argument_raises(given: Any) -> None:
    with pytest.raises(InvalidInput, match="embed"):
        og.init(fresh_memory(), SCHEMA, embedder=given)


def test_write_with_a_provider_of_another_model_names_both_models() -> None:
    class Fixed(Letters):
        model = "large"

    graph = og.init(fresh_memory(), SCHEMA, embedder=Fixed())
    with pytest.raises(InvalidInput, match="model 'large', but the schema names the model 'small'"):
        graph.load({"Doc": [{"slug": "a", "body": "tea"}]})


# --- failures ---------------------------------------------------------------------------------------------

REFUSED = StorageError("text too long", kind="permanent")
GONE = StorageError("unreachable", kind="transient")


def test_load_with_a_failing_provider_commits_nothing(graph: Any, provider: Letters) -> None:
    provider.refused["bad"] = GONE
    with pytest.raises(StorageError, match="unreachable"):
        graph.load({"Doc": [{"slug": "a", "body": "bad"}, {"slug": "b", "body": "tea"}]})
    with pytest.raises(StorageError, match="unreachable"):
        graph.mutate('query q() { insert Doc { slug: "a", body: "bad" } }')
    assert (vectors(graph), len(graph.commits())) == ({}, 1)


def test_load_with_quarantine_leaves_out_the_rows_whose_text_is_refused(
    graph: Any, provider: Letters
) -> None:
    provider.refused["bad"] = REFUSED
    rejects: list[Mapping[str, Any]] = []
    texts = ["tea", "bad", "iron", "ore", "bad", "steel"]
    rows = [{"slug": f"d{number}", "body": text} for number, text in enumerate(texts)]
    receipt = graph.load({"Doc": rows}, rejects=rejects.append)
    assert receipt.rejected == 2
    assert [(item["line"], item["rule"], item["id"], item["reason"]) for item in rejects] == [
        (2, "embed", "d1", "text too long"),
        (5, "embed", "d4", "text too long"),
    ]
    assert rejects[0]["record"] == {"type": "Doc", "data": {"slug": "d1", "body": "bad"}}
    kept = {f"d{number}": vector_of(text) for number, text in enumerate(texts) if text != "bad"}
    assert vectors(graph) == kept


def test_load_with_quarantine_and_an_unreachable_provider_is_refused(graph: Any, provider: Letters) -> None:
    provider.refused["bad"] = GONE
    with pytest.raises(StorageError, match="unreachable"):
        graph.load({"Doc": [{"slug": "a", "body": "bad"}]}, rejects=lambda _: None)
    assert vectors(graph) == {}


# --- repeated requests ------------------------------------------------------------------------------------


def test_repeated_load_with_its_key_computes_nothing_again(graph: Any, provider: Letters) -> None:
    rows = {"Doc": [{"slug": "a", "body": "tea"}]}
    first = graph.load(rows, idempotency_key="k")
    again = graph.load(rows, idempotency_key="k")
    assert (again.commit.id, again.replayed, provider.texts) == (first.commit.id, True, ["tea"])


def test_repeated_load_with_its_key_is_recognized_with_other_computed_vectors() -> None:
    uri, rows = fresh_memory(), {"Doc": [{"slug": "a", "body": "tea"}]}
    og.init(uri, SCHEMA, embedder=lambda texts: [[1, 0, 0] for _ in texts]).load(rows, idempotency_key="k")
    other = og.open(uri, embedder=lambda texts: [[0, 1, 0] for _ in texts])
    assert other.load(rows, idempotency_key="k").replayed


def test_write_after_a_change_of_the_model_computes_the_vector_again(graph: Any, provider: Letters) -> None:
    graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    graph.schema.apply(SCHEMA.replace("small", "large"))
    graph.load({"Doc": [{"slug": "b", "body": "tea"}]})
    assert (provider.texts, provider.models) == (["tea", "tea"], ["small", "large"])
    assert stored(graph)["b"] == (vector_of("tea"), record("tea", "large"))


def test_pickled_handle_computes_vectors() -> None:
    uri = fresh_memory()
    graph = og.init(uri, SCHEMA.replace('"p"', '"mock"'))
    copy = pickle.loads(pickle.dumps(graph))
    copy.load({"Doc": [{"slug": "a", "body": "tea"}]})
    expected = og.embedder_of({"OMNIGRAPH_EMBED_PROVIDER": "mock"}).embed(["tea"], 3, None)[0].tolist()
    assert vectors(graph) == {"a": pytest.approx(expected)}


def test_migration_that_adds_a_provider_keeps_vectors_and_adds_the_record(provider: Letters) -> None:
    declared = SCHEMA.replace(', provider="p"', "")
    graph = og.init(fresh_memory(), declared, embedder=provider)
    graph.load({"Doc": [{"slug": "a", "body": "tea", "v": [1, 2, 3]}]})
    kinds = [step.to_json()["kind"] for step in graph.schema.apply(SCHEMA).plan.steps]
    assert kinds == ["change_embedding", "add_property"]
    assert stored(graph) == {"a": ([1, 2, 3], None)}
