"""The document of the API is generated from the types, and the one in the repository is that one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.server.app import create_app
from omnigraph.server.hosting import Hosted
from omnigraph.server.identity import Identities
from tests.server.running import TOKENS

PAGE = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Hosted(identities=Identities.of(TOKENS))).openapi()


def test_the_document_in_the_repository_is_the_one_that_is_served(document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert PAGE.read_text(encoding="utf-8") == text, (
        "run: python -m omnigraph.server.openapi docs/openapi.json"
    )


def test_every_route_is_described(document: dict[str, Any]) -> None:
    routes = {
        (method, path.removeprefix("/graphs/{graph_id}"))
        for path, item in document["paths"].items()
        for method in item
    }
    assert {("get", "/healthz"), ("get", "/graphs"), ("post", "/query"), ("post", "/mutate")} <= routes
    assert {("post", "/load/ndjson"), ("delete", "/branches/{branch}"), ("get", "/changes")} <= routes


def test_refusals_have_one_shape_and_none_is_a_422(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for operation in item.values():
            assert "422" not in operation["responses"]
            shape = operation["responses"]["default"]["content"]["application/json"]["schema"]
            assert shape == {"$ref": "#/components/schemas/Failure"}


def test_tokens_are_part_of_it_only_where_they_are_asked_for(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert document["paths"]["/graphs"]["get"]["security"] == [{"bearer": []}]
    assert "security" not in json.dumps(create_app(Hosted()).openapi())
