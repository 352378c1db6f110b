"""Settings of a graph: their defaults, their input forms, and that every handle sees them without a request."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import InvalidInput, PermissionDenied
from omnigraph.maintain.settings import GraphSettings, RetentionSetting, change_settings, read_settings
from omnigraph.store.manifest.manifest_change import ManifestChange
from tests.maintain.graphs import new_graph
from tests.support.places import fresh_memory

SCHEMA = "node City { name: String @key }"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("default", RetentionSetting()),
        ("forever", RetentionSetting(keep="forever")),
        ("1h", RetentionSetting(older_than=timedelta(hours=1))),
        (timedelta(hours=1), RetentionSetting(older_than=timedelta(hours=1))),
        ("keep=7", RetentionSetting(keep=7)),
        (" keep = 7 , thinned = 0s ", RetentionSetting(keep=7, thinned=timedelta(0))),
        ({"keep": 7, "older_than": "30s"}, RetentionSetting(keep=7, older_than=timedelta(seconds=30))),
        ({"keep": "forever"}, RetentionSetting(keep="forever")),
        ({}, RetentionSetting()),
    ],
)
def test_retention_in_each_form_is_accepted(given: Any, expected: RetentionSetting) -> None:
    setting = RetentionSetting.of(given)
    assert setting == expected
    assert RetentionSetting.of(setting.to_json()) == RetentionSetting.of(str(setting)) == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("keep=0", "keep must be a whole number of at least 1"),
        ({"keep": True}, "keep must be a whole number"),
        ({"keep": 1.5}, "keep must be a whole number"),
        ("older_than=4s", "older_than must be at least 5s"),
        ("soon", "older_than: 'soon' is not a duration"),
        ("thinned=x", "thinned: 'x' is not a duration"),
        ("keeps=3", "unknown field 'keeps'"),
        ("keep=3,keep=4", "given twice"),
        (5, "expected a text or a mapping"),
        (None, "expected a text or a mapping"),
    ],
)
def test_retention_that_is_invalid_is_refused_with_a_reason(given: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        RetentionSetting.of(given)


def test_set_settings_is_seen_by_every_handle_and_survives_later_commits(tmp_path: Path) -> None:
    uri = str(tmp_path / "g.omni")
    with og.init(uri, schema=SCHEMA, durability="os") as g, og.open(uri, mode="r") as reader:
        assert g.settings() == reader.settings() == GraphSettings()
        changed = g.set_settings(retention={"keep": 9})
        assert changed.retention.keep == 9
        g.load({"City": [{"name": "Bern"}]})
        g.branches.create("dev")
        g.schema.apply(SCHEMA.replace("}", "size: I64? }"))
        assert reader.settings() == g.settings() == changed
        assert [item.operation for item in g.commits()] == ["schema_apply", "load", "init"]
    with og.open(uri) as again:
        assert again.settings() == changed
        again.set_settings(retention="default")
        assert again.settings() == GraphSettings()


def test_set_settings_on_a_handle_for_reading_is_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "g.omni")
    og.init(uri, schema=SCHEMA, durability="os").close()
    with og.open(uri, mode="r") as reader, pytest.raises(PermissionDenied):
        reader.set_settings(retention="forever")


def test_settings_of_a_later_release_are_kept() -> None:
    repository = new_graph(fresh_memory())
    manifest = repository.manifest
    registry = manifest.registry(manifest.view)
    later = registry.with_settings({"color": "blue"})
    manifest.replace_registry_if_equals(manifest.view, registry, ManifestChange(registry=later))
    assert read_settings(repository) == GraphSettings()
    change_settings(repository, retention="keep=9")
    assert manifest.registry(manifest.refresh()).settings["color"] == "blue"
    assert read_settings(repository).retention.keep == 9


def test_settings_are_copied_to_backups_and_clones(tmp_path: Path) -> None:
    with og.init(str(tmp_path / "g"), schema=SCHEMA, durability="os") as g:
        g.set_settings(retention="forever")
        g.backup(str(tmp_path / "b"), durability="os")
    assert og.open(str(tmp_path / "b")).settings().retention.is_forever
    og.clone(str(tmp_path / "g"), str(tmp_path / "c"), durability="os")
    assert og.open(str(tmp_path / "c")).settings().retention.is_forever
