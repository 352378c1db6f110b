"""Requests generated from the OpenAPI document: responses conform to it, and none is a server error.

For each operation, valid and invalid requests are generated. Valid ones often get known names and query texts,
because random ones would all fail the first check.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import CHECKS

from tests.server.running import ADD, ALL, PEOPLE, STORED, TOKENS, Running, everything, host, running
from tests.support.waiting import HANG

DOCUMENT = schemathesis.openapi.from_path(Path(__file__).parents[2] / "docs" / "openapi.json")
OPERATIONS: dict[str, Any] = {
    found.ok().label: found.ok()  # type: ignore[union-attr]
    for found in DOCUMENT.get_all_operations()
}
NAMES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
CONFORMS: Any = [CHECKS.get_one(name) for name in NAMES]
EXAMPLES = 5
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

# Known values of members of bodies, query strings and paths.
SEASONING: dict[str, list[Any]] = {
    "graph_id": ["team"],
    "query": [ALL, ADD, 'query gone() { delete Person where name = "Ann" }', STORED],
    "query_source": [ALL],
    "params": [{}, {"n": "Cy", "a": 3}, {"n": 1}, {"n": "Dee"}],
    "branch": ["main", "side", "nowhere", " main "],
    "source": ["side", "main"],
    "target": ["main", "side"],
    "from": ["main", "side"],
    "name": ["all", "add", "everybody", "hire", "older", "side", "new"],
    "data": [PEOPLE, '{"edge":"Knows","from":"Ann","to":"Bob"}', '{"type":"Nobody","data":{}}'],
    "type": ["Person", "Knows", ["Person"]],
    "id": ["Ann", "nobody"],
    "type_names": [["Person"], ["Nobody"]],
    "entity": ["node"],
    "property": ["name"],
    "before": ["main", "side"],
    "after": ["side", "main"],
    "start": ["now", "beginning"],
    "limit": [1, 100],
    "resolve": ["ours", "theirs", {"*": "ours"}],
    "schema_source": ["node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"],
}


@schemathesis.serializer("application/x-ndjson")
def write_lines(_: Any, value: Any) -> bytes:
    """Serialize a body of lines."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    policy = everything("ann")
    with running(host(policy, tokens=TOKENS, server_policy=None)) as found:
        with found.client("ann") as client:
            made = client.post("/branches", json={"name": "side"})
            assert made.status_code == 200, made.text
        yield found


@pytest.fixture(scope="module")
def caller() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@st.composite
def seasoned(draw: st.DrawFn, label: str) -> Case[Any]:
    case: Case[Any] = draw(OPERATIONS[label].as_strategy())
    for place in (case.path_parameters, case.query, case.body):
        if not isinstance(place, dict):
            continue
        for key in set(place) & set(SEASONING):
            if key == "graph_id" or draw(st.integers(0, 3)):
                place[key] = draw(st.sampled_from(SEASONING[key]))
    return case


def send(case: Case[Any], served: Running, caller: requests.Session, actor: str = "ann") -> None:
    token = {"Authorization": f"Bearer {TOKENS[actor]}"}
    response = case.call(base_url=served.url, session=caller, headers=token, timeout=HANG)
    case.validate_response(response, checks=CONFORMS)


def test_openapi_document_has_all_operations() -> None:
    assert len(OPERATIONS) >= 30


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_valid_requests_get_documented_responses(
    label: str, served: Running, caller: requests.Session
) -> None:
    @BOUNDED
    @given(seasoned(label))
    def call(case: Case[Any]) -> None:
        send(case, served, caller)

    call()


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_invalid_requests_get_documented_responses(
    label: str, served: Running, caller: requests.Session
) -> None:
    @BOUNDED
    @given(OPERATIONS[label].as_strategy(GenerationMode.NEGATIVE))
    def call(case: Case[Any]) -> None:
        # A request to an unknown graph fails before anything else is checked.
        if case.path_parameters.get("graph_id", "").isalnum():
            case.path_parameters["graph_id"] = "team"
        send(case, served, caller)

    if OPERATIONS[label].body or list(OPERATIONS[label].iter_parameters()):
        call()
