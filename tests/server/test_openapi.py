"""The OpenAPI document, which is generated from the routes and models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from omnigraph.protocol.codec import ARROW, EXACT, IF_COMMIT
from omnigraph.server.app import create_app
from omnigraph.server.hosted_graphs import ServerResources
from omnigraph.server.http.authentication import TokenRegistry
from tests.server.running import TOKENS

PAGE = Path(__file__).parents[2] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(ServerResources(tokens=TokenRegistry.of(TOKENS))).openapi()


def test_openapi_file_equals_served_document(document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert PAGE.read_text(encoding="utf-8") == text, (
        "run: python -m omnigraph.server.openapi docs/openapi.json"
    )


def test_openapi_document_is_valid(document: dict[str, Any]) -> None:
    validate(document)


def test_path_parameters_are_documented(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            named = {
                place["name"]: place for place in operation.get("parameters", ()) if place["in"] == "path"
            }
            assert set(named) == set(re.findall(r"{(\w+)}", path))
            assert all(place["required"] for place in named.values())
            if "graph_id" in named:
                assert named["graph_id"]["schema"]["pattern"] == "^[a-zA-Z0-9-]{1,64}$"


def test_every_route_is_documented(document: dict[str, Any]) -> None:
    routes = {
        (method, path.removeprefix("/graphs/{graph_id}"))
        for path, item in document["paths"].items()
        for method in item
    }
    assert {("get", "/healthz"), ("get", "/graphs"), ("post", "/query"), ("post", "/mutate")} <= routes
    assert {("post", "/load/ndjson"), ("delete", "/branches/{branch}"), ("get", "/changes")} <= routes


def test_error_responses_are_documented_with_error_model(document: dict[str, Any]) -> None:
    for item in document["paths"].values():
        for method, operation in item.items():
            statuses = set(operation["responses"])
            assert {"default", "422"}.isdisjoint(statuses)
            assert {"500", "503"} <= statuses
            for status in statuses:
                # A response to HEAD has no body.
                if int(status) >= 400 and method != "head":
                    shape = operation["responses"][status]["content"]["application/json"]["schema"]
                    name = "ChangeErrorOutput" if "changes" in operation["tags"] else "ErrorOutput"
                    assert shape == {"$ref": f"#/components/schemas/{name}"}
    assert "HTTPValidationError" not in document["components"]["schemas"]


@pytest.mark.parametrize(
    ("method", "path", "there", "absent"),
    [
        ("post", "/query", {"400", "403", "404", "413", "415", "429"}, {"409", "412"}),
        ("post", "/mutate", {"409", "415", "429"}, {"410", "412"}),
        ("post", "/mutate/if-graph-commit", {"409", "412", "429"}, {"410"}),
        ("get", "/changes", {"409", "410", "429"}, {"415"}),
        ("get", "/blob", {"206", "302", "304", "412", "416"}, {"409", "415"}),
        ("head", "/blob", {"302", "304", "412"}, {"416"}),
        ("post", "/load/ndjson", {"409", "415", "429"}, {"410"}),
        ("get", "", {"400", "401", "403", "404"}, {"413"}),
    ],
)
def test_route_documents_its_statuses(
    document: dict[str, Any], method: str, path: str, there: set[str], absent: set[str]
) -> None:
    statuses = set(document["paths"][f"/graphs/{{graph_id}}{path}"][method]["responses"])
    assert there <= statuses
    assert statuses.isdisjoint(absent)


def test_alternative_media_types_are_documented(document: dict[str, Any]) -> None:
    def forms(method: str, path: str) -> set[str]:
        found = document["paths"][f"/graphs/{{graph_id}}{path}"][method]["responses"]["200"]["content"]
        return set(found)

    assert forms("post", "/query") == {"application/json", EXACT, ARROW}
    assert forms("get", "/commits") == {"application/json", EXACT}
    assert forms("get", "/diff") == {"application/x-ndjson"}


def test_if_commit_header_is_documented_as_required(document: dict[str, Any]) -> None:
    for path in ("/mutate/if-graph-commit", "/queries/{name}/if-graph-commit"):
        operation = document["paths"][f"/graphs/{{graph_id}}{path}"]["post"]
        assert {"name": IF_COMMIT, "in": "header", "required": True}.items() <= operation["parameters"][
            -1
        ].items()


def test_security_is_documented_only_with_tokens(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert document["paths"]["/graphs"]["get"]["security"] == [{"bearer": []}]
    assert "security" not in json.dumps(create_app(ServerResources()).openapi())
