"""The state of stored vectors and their refresh: after changes of texts and models, on branches, after merges."""

from __future__ import annotations

from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, MergeConflicts, NotFound, StorageError
from tests.search.embeddings.test_computed_vectors import SCHEMA, Letters, stored, vector_of, vectors
from tests.support.places import fresh_memory

LARGE = SCHEMA.replace("small", "large")
NEAREST = (
    "query q($t: String) { match { $d: Doc } return { $d.slug as s } order { nearest($d.v, $t) } limit 1 }"
)


@pytest.fixture
def provider() -> Letters:
    return Letters()


@pytest.fixture
def graph(provider: Letters) -> Any:
    g = og.init(fresh_memory(), SCHEMA, embedder=provider)
    g.load({"Doc": [{"slug": slug, "body": slug * 2} for slug in "abcd"]})
    return g


def counts(g: Any, **arguments: Any) -> dict[str, Any]:
    (found,) = g.embeddings.status(**arguments)
    document: dict[str, Any] = found.to_json()
    return {name: value for name, value in document.items() if value and isinstance(value, int | dict)}


def set_text(g: Any, slug: str, text: str, branch: str = "main") -> None:
    g.mutate("query q($s: String, $t: String) { update Doc set { body: $t } where slug = $s }",
             {"s": slug, "t": text}, branch=branch)  # fmt: skip


def test_status_counts_the_vectors_of_each_state(graph: Any) -> None:
    declared = SCHEMA.replace(', provider="p"', "")
    other = og.init(fresh_memory(), declared)
    other.load(
        {"Doc": [{"slug": "a", "body": "x", "v": [1, 2, 3]}, {"slug": "b", "body": "y"}, {"slug": "c"}]}
    )
    other.schema.apply(SCHEMA)
    assert counts(other) == {"dimension": 3, "rows": 3, "missing": 1, "unrecorded": 1, "empty": 1}
    assert counts(graph) == {"dimension": 3, "rows": 4, "current": 4, "models": {"small": 4}}
    assert graph.embeddings.status()[0].model == "small"


def test_change_of_the_model_makes_all_vectors_stale_and_refresh_computes_them(
    graph: Any, provider: Letters
) -> None:
    before = graph.commits()[0].id
    assert [step.to_json()["kind"] for step in graph.schema.apply(LARGE).plan.steps] == ["change_embedding"]
    assert counts(graph) == {"dimension": 3, "rows": 4, "stale": 4, "models": {"small": 4}}
    provider.batches.clear()
    done = graph.embeddings.refresh()
    assert (done.computed, len(done.commits), provider.models[-1]) == (4, 1, "large")
    assert sorted(provider.texts) == ["aa", "bb", "cc", "dd"]
    assert counts(graph) == {"dimension": 3, "rows": 4, "current": 4, "models": {"large": 4}}
    # A past state keeps its schema and its records.
    assert counts(graph, at=before) == {"dimension": 3, "rows": 4, "current": 4, "models": {"small": 4}}
    assert graph.embeddings.refresh().commits == ()


def test_refresh_that_fails_continues_where_it_ended(graph: Any, provider: Letters) -> None:
    graph.schema.apply(LARGE)
    provider.refused["cc"] = StorageError("gone", kind="transient")
    with pytest.raises(StorageError, match="gone"):
        graph.embeddings.refresh(batch_rows=1)
    state = counts(graph)
    assert state["current"] + state["stale"] == 4
    assert state["current"] > 0
    provider.refused.clear()
    provider.batches.clear()
    seen: list[tuple[str, int]] = []
    done = graph.embeddings.refresh(batch_rows=1, progress=lambda stage, count: seen.append((stage, count)))
    assert done.computed == len(done.commits) == len(provider.texts) == state["stale"]
    assert seen[-1] == ("embed", state["stale"])
    assert counts(graph)["current"] == 4


def test_refresh_keeps_the_changes_of_other_writers(graph: Any, provider: Letters) -> None:
    other = og.open(graph.uri, embedder=lambda texts: [vector_of(text) for text in texts])
    graph.schema.apply(LARGE)

    def interfere(*_: Any) -> None:
        set_text(other, "d", "new text")
        other.delete("Doc", ["c"])

    plain = Letters.embed

    def embed(texts: Any, dim: int, model: str | None) -> Any:
        if not provider.refused:
            provider.refused["once"] = ValueError()
            interfere()
        return plain(provider, texts, dim, model)

    slow = og.open(graph.uri, embedder=embed)
    # The other writer has the new schema, so its vector is current.
    assert slow.embeddings.refresh().computed == 2
    assert vectors(graph) == {"a": vector_of("aa"), "b": vector_of("bb"), "d": vector_of("new text")}
    assert counts(graph)["current"] == 3


def test_refresh_keeps_vectors_that_it_cannot_compute_and_removes_them_on_request(graph: Any) -> None:
    graph.load({"Doc": [{"slug": "e", "v": [7, 8, 9]}]})
    graph.schema.apply(LARGE)
    assert (graph.embeddings.refresh().removed, vectors(graph)["e"]) == (0, [7, 8, 9])
    assert counts(graph)["stale"] == 1
    assert graph.embeddings.refresh(remove=True).removed == 1
    assert stored(graph)["e"] == (None, None)


def test_refresh_of_unrecorded_vectors_needs_the_option(provider: Letters) -> None:
    graph = og.init(fresh_memory(), SCHEMA.replace(', provider="p"', ""), embedder=provider)
    graph.load({"Doc": [{"slug": "a", "body": "x", "v": [1, 2, 3]}]})
    graph.schema.apply(SCHEMA)
    assert graph.embeddings.refresh().computed == 0
    assert graph.embeddings.refresh(unrecorded=True).computed == 1
    assert vectors(graph) == {"a": vector_of("x")}


@pytest.mark.parametrize(
    ("arguments", "error"), [({"types": ["Nope"]}, NotFound), ({"batch_rows": 0}, InvalidInput)], ids=str
)
def test_refresh_with_invalid_arguments_raises(graph: Any, arguments: Any, error: Any) -> None:
    with pytest.raises(error):
        graph.embeddings.refresh(**arguments)


# --- branches and merges ----------------------------------------------------------------------------------


def test_merge_of_another_text_brings_its_vector(graph: Any) -> None:
    graph.branches.create("work")
    set_text(graph, "a", "tea", "work")
    graph.mutate('query q() { update Doc set { other: "x" } where slug = "a" }')
    graph.branches.merge("work")
    assert vectors(graph)["a"] == vector_of("tea")
    assert counts(graph)["current"] == 4


def test_merge_of_a_refresh_leaves_rows_of_the_other_side_to_the_next_one(graph: Any) -> None:
    graph.branches.create("work")
    graph.schema.apply(LARGE, branch="work")
    graph.embeddings.refresh(branch="work")
    graph.load({"Doc": [{"slug": "new", "body": "new"}]})
    graph.branches.merge("work")
    assert counts(graph) == {
        "dimension": 3, "rows": 5, "current": 4, "stale": 1, "models": {"large": 4, "small": 1},
    }  # fmt: skip
    assert graph.embeddings.refresh().computed == 1
    assert graph.query(NEAREST, {"t": "new"}).scalar() == "new"


def test_merge_of_a_new_model_keeps_the_fence_for_rows_of_the_other_side(graph: Any) -> None:
    graph.branches.create("work")
    graph.schema.apply(LARGE, branch="work")
    graph.embeddings.refresh(branch="work")
    graph.load({"Doc": [{"slug": "new", "body": "new"}]})
    graph.branches.merge("work")
    with pytest.raises(InvalidInput, match="has vectors of the model 'small'"):
        graph.query(NEAREST, {"t": "new"})


@pytest.mark.parametrize("side", ["ours", "theirs"])
def test_merge_of_a_text_and_a_refresh_is_a_conflict_and_never_hides_a_stale_vector(
    graph: Any, side: Any
) -> None:
    def by_model(texts: Any, _: int, model: str | None) -> Any:
        return [[*vector_of(text)[:2], len(model or "")] for text in texts]

    graph.branches.create("work")
    graph = og.open(graph.uri, embedder=by_model)
    graph.schema.apply(LARGE, branch="work")
    graph.embeddings.refresh(branch="work")
    set_text(graph, "a", "tea")
    with pytest.raises(MergeConflicts) as caught:
        graph.branches.merge("work")
    names = {item["property"] for item in caught.value.conflicts}
    assert names == {"v", "v_embedded"}
    graph.branches.merge("work", resolve=side)
    assert counts(graph)["stale"] == 1
    graph.embeddings.refresh()
    assert vectors(graph)["a"] == by_model(["tea"], 3, "large")[0]
    assert counts(graph)["current"] == 4


# --- the model of a query ---------------------------------------------------------------------------------


def test_query_by_text_is_refused_while_vectors_of_another_model_are_stored(graph: Any) -> None:
    assert graph.query(NEAREST, {"t": "aa"}).scalar() == "a"
    before = graph.commits()[0].id
    graph.schema.apply(LARGE)
    with pytest.raises(
        InvalidInput, match=r"model 'large', but 'Doc\.v' has vectors of the model 'small'"
    ) as caught:
        graph.query(NEAREST, {"t": "aa"})
    assert (caught.value.details["query_model"], caught.value.details["stored_model"]) == ("large", "small")
    # A vector needs no model, and a past state has the model of its schema.
    with_vector = NEAREST.replace("String", "Vector(3)")
    assert graph.query(with_vector, {"t": vector_of("aa")}).scalar() == "a"
    assert graph.query(NEAREST, {"t": "aa"}, at=before).scalar() == "a"
    graph.embeddings.refresh()
    assert graph.query(NEAREST, {"t": "aa"}).scalar() == "a"


def test_change_of_the_model_and_back_needs_no_refresh(graph: Any) -> None:
    graph.schema.apply(LARGE)
    graph.schema.apply(SCHEMA)
    assert graph.query(NEAREST, {"t": "aa"}).scalar() == "a"
    assert graph.embeddings.refresh().computed == 0


def test_query_with_a_provider_of_another_model_names_both_models(graph: Any) -> None:
    class Fixed(Letters):
        model = "large"

    other = og.open(graph.uri, embedder=Fixed())
    with pytest.raises(InvalidInput, match="model 'large', but the schema names the model 'small'"):
        other.query(NEAREST, {"t": "aa"})
