"""External blobs of an embedded graph: refused by default, allowed below a base, and probed when written."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, ExternalBlobError, InvalidInput
from tests.support.external_objects import web_objects

SCHEMA = (
    "node Doc { name: String @key  body: Blob?  note: String? }\nedge Cites: Doc -> Doc { proof: Blob? }\n"
)
INSERT = "query q($b: Blob) { insert Doc { name: 'q', body: $b } }".replace("'", '"')


def graph(bases: Any = None) -> og.LocalGraph:
    return og.init(f"memory://external-{uuid4().hex}", SCHEMA, external_blobs=bases)


WRITES: dict[str, Callable[[og.Graph, Any], Any]] = {
    "rows": lambda g, uri: g.load({"Doc": [{"name": "a", "body": uri}]}),
    "records": lambda g, uri: g.load([{"type": "Doc", "data": {"name": "a", "body": uri}}]),
    "permissive records": lambda g, uri: g.load(
        [{"type": "Doc", "data": {"name": "a", "body": uri}}], permissive=True
    ),
    "an Arrow table of strings": lambda g, uri: g.load({"Doc": pa.table({"name": ["a"], "body": [uri]})}),
    "an Arrow table of structs": lambda g, uri: g.load(
        {"Doc": pa.table({"name": ["a"], "body": [{"data": None, "uri": uri}]})}
    ),
    "a dry run": lambda g, uri: g.load({"Doc": [{"name": "a", "body": uri}]}, dry_run=True),
    "a parameter": lambda g, uri: g.mutate(INSERT, {"b": uri}),
    "a literal": lambda g, uri: g.mutate(f'query q() {{ insert Doc {{ name: "q", body: "{uri}" }} }}'),
    "an update": lambda g, uri: g.mutate(
        f'query q() {{ update Doc set {{ body: "{uri}" }} where name = "first" }}'
    ),
    "an edge": lambda g, uri: g.load({"Cites": [{"from": "first", "to": "first", "proof": uri}]}),
    "an edge mutation": lambda g, uri: g.mutate(
        f'query q() {{ insert Cites {{ from: "first", to: "first", proof: "{uri}" }} }}'
    ),
}


@pytest.mark.parametrize("write", WRITES)
def test_write_of_external_uri_without_bases_is_refused(write: str) -> None:
    with graph() as g:
        g.load({"Doc": [{"name": "first", "body": b"x"}]})
        before = g.commits()
        for text in ("hello", "https://example.org/x", "javascript:alert(1)", "file:///etc/passwd"):
            with pytest.raises((ConstraintViolation, InvalidInput)) as error:
                WRITES[write](g, text)
            assert text in str(error.value)
            assert "base64:" in str(error.value)
        assert g.commits() == before


@pytest.mark.parametrize("write", WRITES)
def test_write_of_external_uri_below_base_is_stored_if_object_exists(write: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(b"payload")
    (tmp_path / "out.bin").write_bytes(b"secret")
    base = f"{(tmp_path / 'in').as_uri()}/"
    with graph([base]) as g:
        g.load({"Doc": [{"name": "first", "body": b"x"}]})
        for refused in (f"{base}../out.bin", f"{tmp_path.as_uri()}/out.bin"):
            with pytest.raises((ConstraintViolation, InvalidInput)):
                WRITES[write](g, refused)
        with pytest.raises(ExternalBlobError) as error:
            WRITES[write](g, f"{base}missing.bin")
        assert error.value.details == {"uri": f"{base}missing.bin", "reason": "no such file"}
        WRITES[write](g, f"{base}a.bin")


def test_update_of_another_property_keeps_refused_uri(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    uri = f"memory://external-{uuid4().hex}"
    with og.init(uri, SCHEMA, external_blobs=[f"{tmp_path.as_uri()}/"]) as g:
        g.load({"Doc": [{"name": "a", "body": f"{tmp_path.as_uri()}/a"}]})
    with og.open(uri) as g:
        g.mutate('query q() { update Doc set { note: "n" } where name = "a" }')
        assert g.get("Doc", "a") == {"id": "a", "body": f"{tmp_path.as_uri()}/a", "name": "a", "note": "n"}


def test_load_with_rejects_rejects_only_refused_rows() -> None:
    rejected: list[Any] = []
    rows = [{"name": "a", "body": b"x"}, {"name": "b", "body": "hello"}, {"name": "c"}]
    with graph() as g:
        receipt = g.load({"Doc": rows}, rejects=rejected.append)
        assert (receipt.rejected, receipt.nodes) == (1, {"Doc": 2})
    assert "not a valid external URI" in str(rejected[0])


def test_load_probes_each_object_once_and_follows_no_redirect() -> None:
    with web_objects({"/k/a": 200, "/k/b": 200, "/k/moved": 302, "/k/broken": 500}) as web:
        with graph([f"{web.url}/k/"]) as g:
            g.load(
                {
                    "Doc": [
                        {"name": str(number), "body": f"{web.url}/k/{'ab'[number % 2]}"}
                        for number in range(9)
                    ]
                }
            )
            assert sorted(web.requests) == [("HEAD", "/k/a"), ("HEAD", "/k/b")]
            for name, status in (("moved", 302), ("broken", 500), ("gone", 404)):
                with pytest.raises(ExternalBlobError) as error:
                    g.mutate(INSERT, {"b": f"{web.url}/k/{name}"})
                assert error.value.details["reason"] == f"the server responded {status}"
            assert ("HEAD", "/elsewhere") not in web.requests
        url = web.url
    with graph([f"{url}/k/"]) as g, pytest.raises(ExternalBlobError, match="refused"):
        g.mutate(INSERT, {"b": f"{url}/k/a"})


def test_open_with_invalid_base_is_refused() -> None:
    with pytest.raises(InvalidInput, match="does not end with '/'"):
        graph(["s3://assets/k"])


def test_policy_of_handle_is_kept_by_pickle_and_by_other_actors(tmp_path: Path) -> None:
    base = f"{tmp_path.as_uri()}/"
    (tmp_path / "a").write_bytes(b"")
    with graph([base]) as g:
        for handle in (g.acting_as("bo"), pickle.loads(pickle.dumps(g))):
            handle.load({"Doc": [{"name": "a", "body": f"{base}a"}]}, mode="merge")


def test_backfill_with_external_uri_is_refused() -> None:
    with graph() as g:
        g.load({"Doc": [{"name": "a"}]})
        wider = SCHEMA.replace("note: String?", "note: String?  scan: Blob?")
        with pytest.raises(ConstraintViolation, match="not allowed"):
            g.schema.apply(wider, backfill={"Doc.scan": "https://example.org/x"})
