"""Records: JSON forms without loss of information."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.store.manifest.records import (
    BranchEntry,
    CommitRecord,
    HeadRecord,
    RecoveryRecord,
    Registry,
    TablePin,
    encode_body,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MAYBE = st.none() | TEXTS
VERSIONS = st.integers(0, 2**64 - 1)
PINS = st.builds(TablePin, TEXTS, VERSIONS, st.integers(0, 2**63), TEXTS)
COMMITS = st.builds(
    CommitRecord,
    id=TEXTS,
    branch=TEXTS,
    incarnation=TEXTS,
    sequence=st.integers(1, 2**53),
    parent=MAYBE,
    merged_parent=MAYBE,
    actor=MAYBE,
    operation=TEXTS,
    message=MAYBE,
    created_at=st.integers(0, 2**53),
    schema=TEXTS,
    tables=st.dictionaries(TEXTS, PINS, max_size=3),
    touched=st.lists(TEXTS, max_size=3).map(tuple),
    recovered=st.booleans(),
    runs=st.dictionaries(TEXTS, TEXTS, max_size=2),
)
ENTRIES = st.builds(BranchEntry, TEXTS, st.integers(0, 2**53), MAYBE, MAYBE)
REGISTRIES = st.builds(
    Registry,
    st.integers(1, 99),
    TEXTS,
    st.integers(0, 2**53),
    legacy_branches=st.none() | st.dictionaries(TEXTS, ENTRIES, max_size=3),
)
RECOVERIES = st.builds(
    RecoveryRecord,
    TEXTS,
    st.sampled_from(["rolled_forward", "discarded", "orphaned"]),
    MAYBE,
    TEXTS,
    TEXTS,
    MAYBE,
    TEXTS,
    st.integers(0, 2**53),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
)


@given(COMMITS)
def test_a_commit_survives_its_text(record: CommitRecord) -> None:
    assert CommitRecord.from_body(json.loads(encode_body(record.to_body()))) == record


@given(TEXTS, TEXTS, COMMITS)
def test_a_head_survives_its_text(branch: str, incarnation: str, record: CommitRecord) -> None:
    head = HeadRecord(branch, incarnation, record)
    assert HeadRecord.from_body(json.loads(encode_body(head.to_body()))) == head


@given(REGISTRIES)
def test_a_registry_survives_its_text(registry: Registry) -> None:
    assert Registry.from_body(json.loads(encode_body(registry.to_body()))) == registry


@given(RECOVERIES)
def test_a_recovery_survives_its_text(record: RecoveryRecord) -> None:
    assert RecoveryRecord.from_body(json.loads(encode_body(record.to_body()))) == record


@given(REGISTRIES)
def test_every_changed_registry_differs_from_the_one_before(registry: Registry) -> None:
    changed = [
        registry.with_next_epoch(),
        registry.with_format(registry.format),
        registry.without_branches(),
    ]
    assert all(item.epoch == registry.epoch + 1 and item != registry for item in changed)
    assert changed[2].legacy_branches is None


def test_versions_are_strings_in_json() -> None:
    assert TablePin("p", 2**64 - 1, 1, "c").to_body()["version"] == "18446744073709551615"


def test_pin_without_number_takes_the_sequence_of_its_commit() -> None:
    commit = CommitRecord(
        "c", "main", "i", 7, "b", None, None, "mutate", None, 5, "s", {"1": TablePin("p", 1, 0, "c", 3)}
    )
    body = commit.to_body()
    assert CommitRecord.from_body(body).tables["1"].number == 3
    del body["tables"]["1"]["number"]
    assert CommitRecord.from_body(body).tables["1"].number == 7
    # Writers compare pins of commits that different releases wrote.
    assert CommitRecord.from_body(body) == commit


def test_what_was_recorded_without_being_text_is_read_as_text() -> None:
    commit = CommitRecord("c", "main", "i", 2, "b", None, None, "mutate", None, 5, "s")
    read = CommitRecord.from_body({**commit.to_body(), "actor": 5, "message": {"a": 1}})
    assert (read.actor, read.message) == ("5", "{'a': 1}")
    assert BranchEntry.from_body({"incarnation": "i", "created_at": 1, "created_by": 7}).created_by == "7"
