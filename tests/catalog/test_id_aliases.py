"""Alternative forms of ids that the permissive loader accepts."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.catalog.id_aliases import IdAliases, accepts_id, typed_id, typed_text
from omnigraph.errors import InvalidInput
from omnigraph.lang.types import PropType, Scalar
from tests.catalog.test_keys import key_of

COMPOSITE = "node T { day: Date  tenant: String\n @key(tenant, day) }"


@pytest.mark.parametrize(
    ("scalar", "text", "expected"),
    [
        (Scalar.STRING, "x", "x"),
        (Scalar.BOOL, "true", "true"),
        (Scalar.BOOL, "True", None),
        (Scalar.I32, "007", "7"),
        (Scalar.I32, "+7", "7"),
        (Scalar.I32, "7.0", None),
        (Scalar.I32, "2147483648", None),
        (Scalar.U64, 120 * "9", None),
        (Scalar.F64, "1.50", "1.5"),
        (Scalar.F64, "1e3", "1000"),
        (Scalar.F64, "nan", None),
        (Scalar.F64, "1e999", None),
        (Scalar.DATE, "1970-01-31", "30"),
        (Scalar.DATE, "30", "30"),
        (Scalar.DATE, "31.1.1970", None),
        (Scalar.DATETIME, "1970-01-01T00:00:01Z", "1000"),
        (Scalar.DATETIME, "1000", "1000"),
    ],
)
def test_a_text_is_read_as_the_typed_value(scalar: Scalar, text: str, expected: str | None) -> None:
    assert typed_text(text, PropType(scalar)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["30","acme"]', '["30","acme"]'),
        ('["1970-01-31", "acme"]', '["30","acme"]'),
        ('["acme","30"]', None),
        ('["30"]', None),
        ('[30,"acme"]', None),
        ("30", None),
        ("{", None),
    ],
)
def test_a_composite_id_is_read_member_by_member(text: str, expected: str | None) -> None:
    assert typed_id(key_of(COMPOSITE), text) == expected


@pytest.mark.parametrize("given", ["30", "1970-01-31"])
def test_the_iso_form_of_a_date_key_is_accepted(given: str) -> None:
    assert accepts_id(key_of("node T { day: Date @key }"), {"day": 30}, given)


@pytest.mark.parametrize("given", ['["30","acme"]', '["1970-01-31","acme"]', "acme", "30", "1970-01-31"])
def test_any_single_member_of_a_composite_key_is_accepted(given: str) -> None:
    assert accepts_id(key_of(COMPOSITE), {"day": 30, "tenant": "acme"}, given)


@pytest.mark.parametrize("given", ["31", "Acme", '["30","beta"]', ""])
def test_anything_else_is_not(given: str) -> None:
    values: dict[str, Any] = {"day": 30, "tenant": "acme"}
    assert not accepts_id(key_of(COMPOSITE), values, given)


def test_endpoints_are_rewritten_per_type() -> None:
    aliases = IdAliases()
    aliases.add("Day", "30", "1970-01-31")
    aliases.add("Person", "Ann", None)
    assert aliases.resolve("Day", "1970-01-31") == "30"
    assert aliases.resolve("Person", "1970-01-31") == "1970-01-31"
    assert aliases.resolve("Person", "Ann") == "Ann"


def test_a_real_id_is_never_taken_for_an_alias() -> None:
    aliases = IdAliases()
    aliases.add("T", '["30","acme"]', "30")
    aliases.add("T", "30", None)
    assert aliases.resolve("T", "30") == "30"


def test_an_alias_of_two_nodes_is_refused() -> None:
    aliases = IdAliases()
    aliases.add("T", '["7","acme"]', "7")
    aliases.add("T", '["7","beta"]', "7")
    with pytest.raises(InvalidInput, match="ambiguous endpoint '7' of type T"):
        aliases.resolve("T", "7")
