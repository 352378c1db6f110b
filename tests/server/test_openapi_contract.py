"""Operation ids, component names and members that clients generated from the public OpenAPI document depend on.

`openapi_contract.json` lists them. A required member has an asterisk. Our document can have more operations,
statuses, components and optional members.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CONTRACT: dict[str, Any] = json.loads(
    (Path(__file__).parent / "openapi_contract.json").read_text(encoding="utf-8")
)
DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8")
)
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

# Values of ours that the contract does not have.
MORE_VALUES = {"MergeConflictKindOutput": {"schema_conflict"}, "LoadMode": {"patch", "delete"}}
# Schema conflicts are also about interfaces.
MORE_TYPES = {("MergeConflictOutput", "entity_kind"): {"string"}}


def alternatives(schema: dict[str, Any]) -> set[str]:
    """Return the types of a schema in the notation of the contract."""
    if "anyOf" in schema:
        return {name for item in schema["anyOf"] for name in alternatives(item)}
    if "$ref" in schema:
        return {schema["$ref"].rpartition("/")[2]}
    if schema.get("type") == "array":
        return {f"[{name}]" for name in alternatives(schema["items"])}
    if schema.get("type") == "integer":
        return {schema.get("format", "integer")}
    return {schema.get("type", "any").replace("object", "any")}


def reference(content: dict[str, Any]) -> str | None:
    """Return the component that a request or a response has as JSON or as lines of JSON."""
    for media_type in ("application/json", "application/x-ndjson"):
        schema = content.get(media_type, {}).get("schema", {})
        if "$ref" in schema:
            return str(schema["$ref"].rpartition("/")[2])
        names = alternatives(schema) - {"null", "any"} if schema else set()
        if len(names) == 1 and names <= SCHEMAS.keys():
            return names.pop()
    return None


@pytest.mark.parametrize("expected", CONTRACT["operations"], ids=lambda item: item["id"])
def test_operation_has_the_id_the_request_and_the_responses_of_the_contract(expected: dict[str, Any]) -> None:
    operation = DOCUMENT["paths"][expected["path"]][expected["method"]]
    assert operation["operationId"] == expected["id"]
    if expected["request"] is not None:
        assert reference(operation["requestBody"]["content"]) == expected["request"]
    for name, statuses in expected["responses"].items():
        for status in statuses:
            found = reference(operation["responses"][str(status)].get("content", {}))
            assert found == (None if name == "none" else name), status


@pytest.mark.parametrize("name", [name for name, item in CONTRACT["components"].items() if "enum" in item])
def test_enumeration_has_the_values_of_the_contract(name: str) -> None:
    expected = set(CONTRACT["components"][name]["enum"])
    assert set(SCHEMAS[name]["enum"]) == expected | MORE_VALUES.get(name, set())


@pytest.mark.parametrize("name", [name for name, item in CONTRACT["components"].items() if "anyOf" in item])
def test_union_has_the_alternatives_of_the_contract(name: str) -> None:
    assert alternatives(SCHEMAS[name]) == set(CONTRACT["components"][name]["anyOf"])


@pytest.mark.parametrize("name", [name for name, item in CONTRACT["components"].items() if "members" in item])
def test_component_has_the_members_of_the_contract(name: str) -> None:
    schema = SCHEMAS[name]
    members: dict[str, str] = CONTRACT["components"][name]["members"]
    required = {member.removesuffix("*") for member in members if member.endswith("*")}
    is_request = name.endswith("Request")
    own = set(schema["properties"]) - {member.removesuffix("*") for member in members}
    assert set(schema.get("required", ())) - own == required
    # A request with a member that clients do not know must stay valid without it.
    assert not is_request or own.isdisjoint(schema.get("required", ()))
    for member, text in members.items():
        member_name = member.removesuffix("*")
        if text == "any":
            assert member_name in schema["properties"]
            continue
        expected = set(text.split("/"))
        found = alternatives(schema["properties"][member_name])
        # Our requests also accept null for every optional member.
        allowed = {"null"} if is_request else set()
        more = MORE_TYPES.get((name, member_name), set())
        assert expected <= found <= expected | allowed | more, member_name


def test_every_operation_has_an_id_of_its_own_in_the_style_of_the_contract() -> None:
    ids = []
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values():
            ids.append(operation["operationId"])
            assert operation["operationId"].startswith("cluster_") == path.startswith("/graphs/")
    assert len(ids) == len(set(ids))
