"""The error hierarchy is a contract: its codes, its text, and its way through a process boundary."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from omnigraph import errors
from omnigraph.errors import (
    Conflict,
    ConstraintViolation,
    ErrorLocation,
    InvalidInput,
    MergeConflicts,
    OmnigraphError,
    OutcomeUnknown,
    StorageError,
)

# Append-only: a code that was once released keeps its meaning for ever.
CODES = {
    "OmnigraphError": "error",
    "InvalidInput": "invalid_input",
    "NotFound": "not_found",
    "Conflict": "conflict",
    "PreconditionFailed": "precondition_failed",
    "MergeConflicts": "merge_conflicts",
    "ConstraintViolation": "constraint_violation",
    "PermissionDenied": "permission_denied",
    "Cancelled": "cancelled",
    "ResourceLimit": "resource_limit",
    "OutcomeUnknown": "outcome_unknown",
    "RecoveryRequired": "recovery_required",
    "StorageError": "storage_error",
    "UnsupportedFormat": "unsupported_format",
    "ChangeFeedGap": "change_feed_gap",
    "ExternalBlobError": "external_blob_source",
}

EXTRAS: dict[str, dict[str, Any]] = {
    "MergeConflicts": {"conflicts": [{"type": "Person", "id": "ana"}]},
    "ConstraintViolation": {"violations": [{"constraint": "unique", "type": "Person"}]},
    "StorageError": {"transient": True},
}


class PlacedError(InvalidInput):
    """A subclass like the language errors: another constructor, an attribute of its own."""

    def __init__(self, line: int, column: int) -> None:
        super().__init__(f"something is wrong at {line}:{column}", hint="look there")
        self.line = line
        self.column = column


def declared() -> dict[str, type[OmnigraphError]]:
    classes = inspect.getmembers(errors, inspect.isclass)
    return {name: found for name, found in classes if issubclass(found, OmnigraphError)}


def example(name: str) -> OmnigraphError:
    return declared()[name](
        "it did not work",
        details={"table": "Person", "expected": "7"},
        hint="try again",
        **EXTRAS.get(name, {}),
    )


def test_error_codes_are_the_released_ones() -> None:
    assert {name: found.code for name, found in declared().items()} == CODES


def test_error_codes_are_unique() -> None:
    assert len(set(CODES.values())) == len(CODES)


def test_error_classes_are_public() -> None:
    assert sorted(errors.__all__) == sorted(CODES)


@pytest.mark.parametrize("name", sorted(CODES))
def test_error_classes_document_reaction_and_effect(name: str) -> None:
    summary, _, rest = (declared()[name].__doc__ or "").strip().partition("\n\n")
    assert summary.endswith(".")
    assert len(rest.split()) > 8


@pytest.mark.parametrize("name", sorted(CODES))
def test_pickle_of_an_error_keeps_its_fields(name: str) -> None:
    error = example(name)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert copy.__dict__ == error.__dict__
    assert copy.args == error.args
    assert str(copy) == str(error)


def test_pickle_of_subclass_with_other_constructor_keeps_its_fields() -> None:
    copy = pickle.loads(pickle.dumps(PlacedError(3, 14)))
    assert isinstance(copy, PlacedError)
    assert (copy.line, copy.column, copy.code) == (3, 14, "invalid_input")
    assert str(copy) == "something is wrong at 3:14\nhint: look there"


def test_pickle_of_an_error_keeps_its_notes() -> None:
    error = InvalidInput("no")
    error.add_note("while loading people.ndjson")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while loading people.ndjson"]


def test_str_without_hint_is_the_message() -> None:
    assert str(InvalidInput("no such thing")) == "no such thing"


def test_str_with_hint_has_it_on_its_own_line() -> None:
    assert str(InvalidInput("no such thing", hint="look again")) == "no such thing\nhint: look again"


def test_details_are_a_copy() -> None:
    given = {"table": "Person"}
    error = Conflict("moved", details=given)
    given["table"] = "Firm"
    assert error.details == {"table": "Person"}


def test_conflicts_and_violations_are_data() -> None:
    assert MergeConflicts("two", [{"id": "a"}, {"id": "b"}]).conflicts == ({"id": "a"}, {"id": "b"})
    assert ConstraintViolation("one", [{"id": "a"}]).violations == ({"id": "a"},)


def test_str_of_violation_names_place_and_number_of_others() -> None:
    first = {"message": "dst 'x' not found in City", "type": "edge:Lives", "line": 3, "source": "in.csv"}
    error = errors.ConstraintViolation(str(first["message"]), [first], details={"violations": 300})
    assert str(error) == "in.csv: Lives line 3: dst 'x' not found in City (and 299 more)"
    assert error.message == "dst 'x' not found in City"
    assert str(errors.ConstraintViolation("2 violations: a, b", [first])) == "2 violations: a, b"
    assert str(errors.ConstraintViolation("a", [{"message": "a", "type": "node:City"}])) == "a"


def test_message_with_location_names_the_place_and_keeps_the_reason() -> None:
    place = ErrorLocation(source="people.csv", row=3, column="age")
    error = InvalidInput('expected I32, got "x"', location=place, hint="remove it", details={"limit": 1})
    assert error.message == "people.csv: row 3, column 'age': expected I32, got \"x\""
    assert error.reason == 'expected I32, got "x"'
    assert str(error) == f"{error.message}\nhint: remove it"
    assert error.details == {"limit": 1, "source": "people.csv", "row": 3, "column": "age"}
    assert pickle.loads(pickle.dumps(error)).location == place


def test_located_error_is_a_copy_with_the_other_location() -> None:
    error = StorageError("unreadable", transient=True, location=ErrorLocation(line=2))
    moved = error.located(ErrorLocation(source="in.ndjson").updated(ErrorLocation(line=2).shifted(40)))
    assert type(moved) is StorageError
    assert (moved.message, moved.transient) == ("in.ndjson: line 42: unreadable", True)
    assert moved.details == {"kind": "transient", "source": "in.ndjson", "line": 42}
    assert error.message == "line 2: unreadable"
    assert error.details == {"kind": "transient", "line": 2}


def test_location_without_fields_adds_nothing_to_the_message() -> None:
    assert InvalidInput("no", location=ErrorLocation()).message == "no"


def test_storage_error_is_not_transient_by_default() -> None:
    assert not StorageError("disk is full").transient
    assert StorageError("timed out", transient=True).transient


def test_conflict_and_outcome_unknown_are_separate_classes() -> None:
    # A handler that retries on Conflict must not by accident retry a write that may have happened.
    assert not issubclass(OutcomeUnknown, Conflict)
    assert not issubclass(Conflict, OutcomeUnknown)
