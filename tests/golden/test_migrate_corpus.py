"""Golden corpus of migrations: two schemas and the plan from one to the other in each `.migrate` file.

A file starts with a comment that describes the case. Sections follow: ``-- old`` and ``-- new`` (optionally with
``allow_data_loss`` and ``backfill=Type.property``), then the expected output, either ``-- plan`` and ``-- text`` or
``-- error``. ``OMNIGRAPH_UPDATE_GOLDEN=1`` rewrites the expected output; review every difference.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph.catalog.catalog import Catalog, accept
from omnigraph.catalog.migration.evolve import evolve
from omnigraph.catalog.migration.planner import plan_migration
from omnigraph.catalog.migration.step_text import render_plan
from omnigraph.catalog.migration.steps import MigrationPlan
from omnigraph.errors import InvalidInput
from omnigraph.lang.pg.schema_compiler import load_schema
from omnigraph.lang.schema import Schema

CASES = sorted((Path(__file__).parent / "migrate").glob("*.migrate"))
SECTION = re.compile(r"^-- (old|new|plan|text|error)(?: (.*))?\n", flags=re.MULTILINE)


@dataclass(frozen=True)
class Case:
    about: str
    old: str
    new: str
    flags: tuple[str, ...]
    expected: str

    @property
    def backfills(self) -> list[str]:
        return [flag.removeprefix("backfill=") for flag in self.flags if flag.startswith("backfill=")]

    @property
    def accepted(self) -> Catalog:
        return accept(load_schema(self.old, "old"), self.old)

    @property
    def desired(self) -> Schema:
        return load_schema(self.new, "new")

    def plan(self) -> MigrationPlan:
        return plan_migration(
            self.accepted,
            self.desired,
            allow_data_loss="allow_data_loss" in self.flags,
            backfills=self.backfills,
        )


def read(path: Path) -> Case:
    about, *parts = SECTION.split(path.read_text(encoding="utf-8"))
    sections = {name: (flag, body) for name, flag, body in zip(*[iter(parts)] * 3, strict=True)}
    flag, new = sections["new"]
    expected = "".join(
        f"-- {name}\n{sections[name][1]}" for name in ("plan", "text", "error") if name in sections
    )
    return Case(about, sections["old"][1], new, tuple((flag or "").split()), expected)


def actual(case: Case) -> str:
    try:
        found = case.plan()
    except InvalidInput as error:
        return "-- error\n" + "".join(f"{line}\n" for line in error.details["errors"])
    steps = ",\n".join(f"  {json.dumps(step.to_json(), ensure_ascii=False)}" for step in found.steps)
    listed = f"[\n{steps}\n]" if steps else "[]"
    supported = json.dumps(found.supported)
    return f'-- plan\n{{"supported": {supported}, "steps": {listed}}}\n-- text\n{render_plan(found)}\n'


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_plan_is_the_expected_one(path: Path) -> None:
    case = read(path)
    found = actual(case)
    if os.environ.get("OMNIGRAPH_UPDATE_GOLDEN") == "1" and found != case.expected:
        new = " ".join(("new", *case.flags))
        head = f"{case.about}-- old\n{case.old}-- {new}\n{case.new}"
        path.write_text(head + found, encoding="utf-8")
    assert found == read(path).expected


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_supported_plan_leads_to_the_desired_schema(path: Path) -> None:
    case = read(path)
    if "-- error" in case.expected:
        with pytest.raises(InvalidInput):
            case.plan()
        return
    found = case.plan()
    if found.supported:
        after = evolve(case.accepted, case.desired, case.new, found, backfills=case.backfills)
        assert plan_migration(after, case.desired).steps == ()
    else:
        with pytest.raises(InvalidInput, match=re.escape(found.refusal or "")):
            evolve(case.accepted, case.desired, case.new, found, backfills=case.backfills)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_case_says_what_it_shows(path: Path) -> None:
    assert re.match(r"(// .+\n)+\n", read(path).about)


def test_the_corpus_covers_every_kind_of_step() -> None:
    kinds = Counter(
        step.to_json()["kind"]
        for case in map(read, CASES)
        if "-- error" not in case.expected
        for step in case.plan().steps
    )
    assert set(kinds) == {
        "add_type", "rename_type", "add_property", "rename_property", "add_constraint", "extend_enum",
        "remove_constraint", "update_type_metadata", "update_property_metadata", "change_embedding", "drop_type",
        "drop_property", "unsupported_change",
    }  # fmt: skip
