"""Embedding providers over HTTP, real servers on this machine: what they are asked, and what is made of it."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.budget.deadline import time_limit
from omnigraph.errors import Cancelled, InvalidInput, StorageError
from omnigraph.search.embeddings.embedder import Embedder, MockEmbedder
from omnigraph.search.embeddings.provider_settings import EmbeddingSettings
from omnigraph.search.embeddings.providers import close_provider
from omnigraph.search.embeddings.request_rate import RequestRate
from omnigraph.search.embeddings.vector_cache import FileCache
from tests.support.places import fresh_memory
from tests.support.waiting import HANG

KEY = "a-key-that-nobody-sees"


@dataclass
class Provider:
    """A provider that answers with what a function makes of each request."""

    url: str = ""
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    connections: int = 0
    retry_after: str = "0"

    def open(self, kind: str, *, documents: bool = False, **more: str) -> Embedder:
        """A client of it, by the environment that its user would set."""
        key = "GEMINI_API_KEY" if kind == "gemini" else "OPENAI_API_KEY"
        environment = {
            "OMNIGRAPH_EMBED_PROVIDER": kind,
            "OMNIGRAPH_EMBED_BASE_URL": self.url,
            "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1",
            key: KEY,
            **more,
        }
        return EmbeddingSettings.of(environment).open(documents=documents)


@contextmanager
def provider(answer: Callable[[Any, int], tuple[int, Any]]) -> Iterator[Provider]:
    found = Provider()

    class Handler(BaseHTTPRequestHandler):
        # Connections are kept open between requests.
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            found.connections += 1

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found.asked.append(
                (self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            )
            status, document = answer(body, len(found.asked))
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", found.retry_after)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield found
        finally:
            server.shutdown()
            thread.join(HANG)


def by_length(body: Any, _: int) -> tuple[int, Any]:
    """Vectors that tell the text's length, the last text first, as a provider may answer."""
    items = [{"index": place, "embedding": [len(text), 0, 0]} for place, text in enumerate(body["input"])]
    return 200, {"data": items[::-1]}


def test_embed_many_texts_sends_batches_and_keeps_the_order() -> None:
    texts = [f"text {'x' * (number % 7)}" for number in range(130)]
    with provider(
        lambda body, _: (
            200,
            {
                "data": [
                    {"index": place, "embedding": [len(text), 1, 0]}
                    for place, text in reversed(list(enumerate(body["input"])))
                ]
            },
        )
    ) as server:
        found = server.open("openai").embed(texts, 3, None)
        assert [len(body["input"]) for _, _, body in server.asked] == [64, 64, 2]
        path, headers, body = server.asked[0]
        assert (path, headers["authorization"]) == ("/v1/embeddings", f"Bearer {KEY}")
        assert (body["model"], body["dimensions"]) == ("text-embedding-3-large", 3)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
    assert np.allclose(found[:, 0] / found[:, 1], [len(text) for text in texts])


@pytest.mark.parametrize(("documents", "task"), [(False, "RETRIEVAL_QUERY"), (True, "RETRIEVAL_DOCUMENT")])
def test_embed_with_gemini_sends_the_task_type(documents: bool, task: str) -> None:
    with provider(
        lambda body, _: (200, {"embeddings": [{"values": [3, 4]} for _ in body["requests"]]})
    ) as server:
        found = server.open("gemini", documents=documents).embed(["a", "b"], 2, "special")
        path, headers, body = server.asked[0]
    assert found.tolist() == [pytest.approx([0.6, 0.8])] * 2
    assert path == "/v1/models/special:batchEmbedContents"
    assert headers["x-goog-api-key"] == KEY
    assert [item["taskType"] for item in body["requests"]] == [task] * 2
    assert body["requests"][1]["content"] == {"parts": [{"text": "b"}]}
    assert body["requests"][0]["outputDimensionality"] == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_embed_after_temporary_error_is_retried(status: int) -> None:
    with provider(lambda body, n: by_length(body, n) if n == 3 else (status, {})) as server:
        assert server.open("openai-compatible").embed(["a"], 3, None).tolist() == [[1, 0, 0]]
        assert len(server.asked) == 3


def test_embed_after_retry_after_beyond_the_deadline_gives_up_at_once() -> None:
    with provider(lambda *_: (429, {})) as server:
        server.retry_after = "3600"
        with pytest.raises(StorageError, match="HTTP status 429") as caught:
            server.open("openai").embed(["a"], 3, None)
        assert (len(server.asked), caught.value.transient) == (1, True)


def test_embed_with_a_slow_response_ends_at_the_deadline_of_the_request() -> None:
    release = threading.Event()

    def answer(*_: object) -> tuple[int, Any]:
        release.wait(HANG)
        return 200, {}

    with provider(answer) as server:
        slow = server.open("openai", OMNIGRAPH_EMBED_TIMEOUT_MS="50", OMNIGRAPH_EMBED_RETRY_ATTEMPTS="2")
        with pytest.raises(StorageError, match="ReadTimeout") as caught:
            slow.embed(["a"], 3, None)
        release.set()
        assert (len(server.asked), caught.value.transient) == (2, True)


def test_embed_in_a_cancelled_request_raises_without_another_attempt() -> None:
    with provider(lambda *_: (503, {})) as server, time_limit(None) as limit:
        embedder = server.open(
            "openai", OMNIGRAPH_EMBED_RETRY_BACKOFF_MS="60000", OMNIGRAPH_EMBED_DEADLINE_MS="0"
        )
        limit.cancel("test")
        with pytest.raises(Cancelled):
            embedder.embed(["a"], 3, None)
        assert server.asked == []


def test_pickled_request_rate_spaces_the_requests_of_its_process() -> None:
    rate = RequestRate(60, clock=lambda: 7.0)
    copy = pickle.loads(pickle.dumps(rate))
    assert [rate.reserve(), rate.reserve(), RequestRate(0).reserve()] == [0.0, 1.0, 0.0]
    assert copy.reserve() == 0.0


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        ((401, {"error": KEY}), 1),
        ((500, {}), 4),
        ((200, b"<html>"), 1),
        ((200, []), 1),
        ((200, {"data": [{"index": 0, "embedding": [1, 2]}]}), 1),
        ((200, {"data": [{"index": 0, "embedding": [0, 0, 0]}]}), 1),
        ((200, {"data": [{"index": 0, "embedding": ["x", 0, 0]}]}), 1),
        ((200, {"data": []}), 1),
        ((200, {"data": [{"index": 7, "embedding": [1, 0, 0]}]}), 1),
        ((200, {"data": [{"index": [0], "embedding": [1, 0, 0]}]}), 1),
    ],
    ids=str,
)
def test_embed_with_invalid_response_raises_without_showing_the_key(
    answer: tuple[int, Any], times: int
) -> None:
    with provider(lambda *_: answer) as server:
        with pytest.raises(StorageError, match="embedding provider") as caught:
            server.open("openai").embed(["a"], 3, None)
        assert len(server.asked) == times
    assert KEY not in f"{caught.value!r}{caught.value.details}{server.open('openai')!r}"


def test_embed_with_unreachable_provider_raises() -> None:
    with provider(by_length) as server:
        gone = server.open("openai", OMNIGRAPH_EMBED_RETRY_ATTEMPTS="2")
    with pytest.raises(StorageError, match="returned no vectors"):
        gone.embed(["a"], 3, None)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({}, "needs a key"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "gemini", "OPENAI_API_KEY": KEY}, "needs a key"),
        ({"OMNIGRAPH_EMBED_PROVIDER": "cohere"}, "'cohere'"),
        ({"OPENAI_API_KEY": KEY, "OMNIGRAPH_EMBED_TIMEOUT_MS": "soon"}, "TIMEOUT_MS must be"),
        ({"OPENAI_API_KEY": "kéy"}, "not ASCII"),
    ],
    ids=str,
)
def test_settings_of_incomplete_environment_raise_with_a_hint(environment: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidInput, match=text) as caught:
        EmbeddingSettings.of(environment)
    assert KEY not in str(caught.value)


def test_settings_with_mock_variable_ignore_other_variables() -> None:
    chosen = {"OMNIGRAPH_EMBEDDINGS_MOCK": "1", "OMNIGRAPH_EMBED_PROVIDER": "gemini", "GEMINI_API_KEY": KEY}
    assert isinstance(EmbeddingSettings.of(chosen).open(), MockEmbedder)
    assert isinstance(EmbeddingSettings.of({"OMNIGRAPH_EMBED_PROVIDER": "mock"}).open(), MockEmbedder)
    assert EmbeddingSettings.of({**chosen, "OMNIGRAPH_EMBEDDINGS_MOCK": "0"}).provider == "gemini"


def test_query_ranked_by_text_uses_the_provider_of_the_environment() -> None:
    uri = fresh_memory()
    g = og.init(uri, "node Doc { slug: String @key  v: Vector(3)? }")
    near, far = MockEmbedder().embed(["tea", "steel"], 3, None).tolist()
    g.load({"Doc": [{"slug": "near", "v": near}, {"slug": "far", "v": far}]})
    ask = "query q($t: String) { match { $d: Doc } return { $d.slug as s } order { nearest($d.v, $t) } limit 1 }"
    with pytest.raises(InvalidInput, match="no embedding provider"):
        g.query(ask, {"t": "tea"})
    with pytest.raises(InvalidInput, match="needs a key"):
        og.open(uri, embedder=og.embedder_of({})).query(ask, {"t": "tea"})
    mock = og.embedder_of({"OMNIGRAPH_EMBEDDINGS_MOCK": "1"})
    assert og.open(uri, embedder=mock).query(ask, {"t": "tea"}).rows() == [{"s": "near"}]


def test_pickle_of_environment_embedder_keeps_only_its_variables() -> None:
    given = {"OMNIGRAPH_EMBED_PROVIDER": "mock", "AWS_SECRET_ACCESS_KEY": "hush"}
    packed = pickle.dumps(og.embedder_of(given))
    assert b"hush" not in packed
    assert pickle.loads(packed).embed(["a"], 2, None).shape == (1, 2)


def test_embed_several_requests_reuses_the_connection() -> None:
    with provider(by_length) as server:
        embedder = server.open("openai")
        for text in ("a", "bb", "ccc"):
            embedder.embed([text] * 65, 3, None)
        assert (len(server.asked), server.connections) == (6, 1)
        close_provider(embedder)


def test_graph_close_closes_the_connection_and_leaves_the_provider_usable() -> None:
    query = "query q($t: String) { match { $d: Doc } return { $d.slug as s } order { nearest($d.v, $t) } limit 1 }"
    with provider(by_length) as server:
        variables = {"OMNIGRAPH_EMBED_BASE_URL": server.url, "OPENAI_API_KEY": KEY}
        embedder = og.embedder_of(variables)
        with og.init(fresh_memory(), "node Doc { slug: String @key  v: Vector(3)? }", embedder=embedder) as g:
            g.load({"Doc": [{"slug": "a", "v": [1, 0, 0]}]})
            with g.acting_as("ann") as view:
                view.query(query, {"t": "tea"})
            g.query(query, {"t": "steel"})
            assert server.connections == 1
        assert embedder.embed(["tea"], 3, None).tolist() == [[1, 0, 0]]
        assert server.connections == 2
        close_provider(embedder)


def test_pickle_of_a_used_provider_leaves_out_the_connections() -> None:
    with provider(by_length) as server:
        embedder = server.open("openai")
        embedder.embed(["a"], 3, None)
        copy = pickle.loads(pickle.dumps(embedder))
        copy.embed(["b"], 3, None)
        assert server.connections == 2
        close_provider(embedder)
        close_provider(copy)


# --- the providers of a schema ----------------------------------------------------------------------------

SCHEMA = """
node Doc {
  slug: String @key
  body: String
  v: Vector(3)? @embed("body", model="small", provider="openai")
}
"""


def environment(server: Provider, cache: Path | None) -> dict[str, str]:
    return {
        "OMNIGRAPH_EMBED_PROVIDER": "openai",
        "OMNIGRAPH_EMBED_BASE_URL": server.url,
        "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": "1",
        "OMNIGRAPH_EMBED_CACHE": "off" if cache is None else str(cache),
        "OPENAI_API_KEY": KEY,
    }


def test_load_with_a_provider_over_http_caches_vectors_for_other_processes(tmp_path: Path) -> None:
    rows = {"Doc": [{"slug": str(number), "body": "x" * (number + 1)} for number in range(130)]}
    with provider(by_length) as server:
        for cache, requests in ((tmp_path, 3), (tmp_path, 3), (None, 6)):
            embedder = og.embedder_of(environment(server, cache))
            with og.init(fresh_memory(), SCHEMA, embedder=embedder) as graph:
                graph.load(rows)
                assert graph.get("Doc", "129")["v"] == [1, 0, 0]  # type: ignore[index]
            assert len(server.asked) == requests
    assert {body["model"] for _, _, body in server.asked} == {"small"}
    assert [path.name for path in tmp_path.glob("*.sqlite")] == ["embeddings-1.sqlite"]


@pytest.mark.parametrize("changed", ["model", "dimension", "address"])
def test_cached_vector_of_another_model_is_not_used(tmp_path: Path, changed: str) -> None:
    def answer(body: Any, _: int) -> tuple[int, Any]:
        dim = body["dimensions"]
        return 200, {"data": [{"embedding": [1.0, *[0.0] * (dim - 1)]} for _ in body["input"]]}

    schemas = {
        "model": SCHEMA.replace("small", "large"),
        "dimension": SCHEMA.replace("Vector(3)", "Vector(4)"),
    }
    with provider(answer) as server, provider(answer) as moved:
        for schema, at in (
            (SCHEMA, server),
            (schemas.get(changed, SCHEMA), moved if changed == "address" else server),
        ):
            with og.init(fresh_memory(), schema, embedder=og.embedder_of(environment(at, tmp_path))) as graph:
                graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
        assert len(server.asked) + len(moved.asked) == 2


def test_write_with_an_unwritable_cache_computes_the_vectors(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with provider(by_length) as server:
        embedder = og.embedder_of(environment(server, blocked))
        with og.init(fresh_memory(), SCHEMA, embedder=embedder) as graph:
            graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
            assert graph.get("Doc", "a")["v"] == [1, 0, 0]  # type: ignore[index]


def test_full_file_cache_discards_the_least_recently_used_vectors(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "c.sqlite", max_bytes=400)
    keys = [bytes([number]) for number in range(12)]
    for key in keys[:10]:
        cache.add({key: np.full(10, key[0], np.float32)})
        cache.find([keys[0]])
    cache.add({keys[10]: np.zeros(10, np.float32)})
    found = cache.find(keys)
    assert keys[0] in found
    assert keys[1] not in found
    assert keys[10] in found
    assert sum(vector.nbytes for vector in found.values()) <= 400
    assert found[keys[0]].tolist() == [0.0] * 10


def test_load_with_wrong_dimensions_of_the_provider_is_refused_with_type_and_property() -> None:
    with provider(lambda *_: (200, {"data": [{"embedding": [1.0, 2.0]}]})) as server:
        graph = og.init(fresh_memory(), SCHEMA, embedder=og.embedder_of(environment(server, None)))
        with graph, pytest.raises(StorageError, match=r"shape \(1, 2\), expected \(1, 3\)") as caught:
            graph.load({"Doc": [{"slug": "a", "body": "tea"}]})
    assert "Doc.v" in "".join(caught.value.__notes__)


def test_providers_of_the_schema_use_their_own_settings() -> None:
    two = """
    node Doc {
      slug: String @key
      a: Vector(3)? @embed("slug", provider="openai")
      b: Vector(3)? @embed("slug", provider="mock")
      c: Vector(3)? @embed("slug", provider="default")
    }
    """
    with (
        provider(by_length) as server,
        og.init(fresh_memory(), two, embedder=og.embedder_of(environment(server, None))) as graph,
    ):
        graph.load({"Doc": [{"slug": "tea"}]})
        row = graph.get("Doc", "tea")
    assert row is not None
    assert (row["a"], row["c"]) == ([1, 0, 0], [1, 0, 0])
    assert row["b"] == pytest.approx(MockEmbedder().embed(["tea"], 3, None)[0].tolist())
    with pytest.raises(InvalidInput, match="'cohere'"):
        og.embedder_of({}).provider_for("cohere", documents=True)  # type: ignore[attr-defined]
