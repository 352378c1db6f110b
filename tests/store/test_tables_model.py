"""Random sequences of staged changes, compared with a dictionary model for every staged version."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.store.lance.lance_filters import quote_string
from omnigraph.store.tables import tables as tables_module
from omnigraph.store.tables.tables import Tables
from tests.support.places import fresh_memory
from tests.support.rows import SCHEMA, arrow, compact, make_table, pin_of, plain, read

IDS = ["a", "b", "c", "d", "it's", "é", "🙂", "aa", "A", ""]


@dataclass(frozen=True)
class Step:
    """One change staged on an earlier version, counted from the newest."""

    kind: str
    back: int
    deleted: frozenset[str] = frozenset()
    inserted: frozenset[str] = frozenset()


STEPS = st.builds(
    Step,
    st.sampled_from(["rows"] * 6 + ["overwrite", "rewrite", "index"]),
    st.sampled_from([0] * 8 + [1, 2, 3]),
    st.frozensets(st.sampled_from(IDS), max_size=4),
    st.frozensets(st.sampled_from(IDS), max_size=4),
)


@pytest.fixture(autouse=True)
def small_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact after a few fragments."""
    monkeypatch.setattr(tables_module, "COMPACT_AT", 3)
    monkeypatch.setattr(tables_module, "COMPACTION_TIERS", (2, 4, 8))


@settings(
    max_examples=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(STEPS, min_size=1, max_size=14))
def test_every_staged_version_reads_as_the_model_says(steps: list[Step]) -> None:
    tables, pin = make_table(fresh_memory())
    versions: list[tuple[object, dict[str, str | None]]] = [(pin, {})]
    pins = [pin]
    for number, step in enumerate(steps):
        back = min(step.back, len(pins) - 1)
        base, model = pins[-1 - back], dict(versions[-1 - back][1])
        new: dict[str, str | None] = dict.fromkeys(step.inserted, f"{number}")
        if step.kind == "rows":
            # Callers never insert an id that exists and is not deleted.
            gone = step.deleted | (step.inserted & model.keys())
            staged = tables.stage(base, delete_ids=sorted(gone), insert=arrow(new) if new else None)
            model = {id_: name for id_, name in model.items() if id_ not in gone} | new
        elif step.kind == "overwrite":
            staged, model = tables.stage_overwrite(base, arrow(new).to_batches() if new else [], SCHEMA), new
        elif step.kind == "rewrite":
            staged = compact(tables, base)
        else:
            staged = tables.stage_index(base, "id", "BTREE")
        pins.append(pin_of(staged))
        versions.append((pins[-1], model))
    for seen, (_, expected) in zip(pins, versions, strict=True):
        assert read(tables, seen) == expected
    _check_lookups(tables, pins[-1].path, pins[-1].version, versions[-1][1])


def _check_lookups(tables: Tables, path: str, version: int, model: dict[str, str | None]) -> None:
    dataset = tables.open(path, version)
    for id_ in IDS:
        found = plain(dataset.scanner(filter=f"id = {quote_string(id_)}").to_table())
        assert found == ({id_: model[id_]} if id_ in model else {})
