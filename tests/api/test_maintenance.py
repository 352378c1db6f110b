"""Garbage collection and repair through the Python API."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.api.local.open_options import OpenOptions
from omnigraph.errors import InvalidInput, PermissionDenied
from omnigraph.graph.repository import Repository
from omnigraph.read.reader import Reader
from tests.cli.graphs import abandon_load, make_graph
from tests.support.places import fresh_memory


class TestRepair:
    def test_repair_without_interrupted_writes_reports_every_type(self) -> None:
        g = og.init(fresh_memory(), schema="node City { name: String @key }")
        for confirm in (False, True):
            report = g.repair(confirm)
            assert (report.confirmed, report.pending, report.settled) == (confirm, 0, ())
            assert report.graph_manifest_version == g.snapshot().commit.sequence
            assert [(item["type_key"], item["action"]) for item in report.datasets] == [
                ("node:City", "no_op")
            ]

    def test_repair_of_interrupted_write_previews_then_settles_it(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "g.omni")
        make_graph(uri)
        id_ = abandon_load(uri, "Bob", complete=True, actor="dan")
        with og.open(uri, "r") as reader:
            preview = reader.repair()
            with pytest.raises(PermissionDenied, match="open for reading only"):
                reader.repair(confirm=True)
        assert (preview.confirmed, preview.pending, preview.settled) == (False, 1, ())
        assert {item["action"] for item in preview.datasets} == {"preview", "no_op"}
        with reopen_without_recovery(uri) as g:
            report = g.repair(confirm=True)
            assert [item["id"] for item in report.settled] == [id_]
            assert report.graph_manifest_version == preview.graph_manifest_version + 1
            assert g.repair().pending == 0

    def test_repair_force_discards_unreadable_intent_that_confirm_refuses(self, tmp_path: Path) -> None:
        uri = str(tmp_path / "g.omni")
        make_graph(uri)
        (tmp_path / "g.omni" / "__recovery").mkdir(exist_ok=True)
        (tmp_path / "g.omni" / "__recovery" / "01M7F7J2SC9H2KDJR8X2Y3TSZ0.json").write_text("{")
        with reopen_without_recovery(uri) as g:
            assert [item["action"] for item in g.repair(confirm=True).datasets][-1] == "refused"
            assert [item["action"] for item in g.repair(confirm=True, force=True).datasets][-1] == "forced"
            assert g.repair().pending == 0

    def test_repair_force_without_confirm_is_refused(self) -> None:
        g = og.init(fresh_memory(), schema="node City { name: String @key }")
        with pytest.raises(InvalidInput, match="`force` requires `confirm`"):
            g.repair(force=True)


def reopen_without_recovery(uri: str) -> og.LocalGraph:
    """A handle on a graph whose interrupted writes are still pending."""
    return og.LocalGraph(Repository.open(uri, recover=False), Reader(), OpenOptions())


class TestCleanup:
    def test_cleanup_reports_control_objects_and_honours_the_grace(self, tmp_path: Path) -> None:
        with og.init(str(tmp_path / "g.omni"), schema="node City { name: String @key }") as g:
            for name in ("Bern", "Rome"):
                g.load({"City": [{"name": name}]}, idempotency_key=name)
            spared = g.cleanup(keep=1)
            assert spared["datasets"][0]["files_removed"] == 0
            for grace in ("0s", timedelta(0)):
                assert g.cleanup(keep=1, grace=grace)["datasets"][0]["files_removed"] > 0
            report = g.cleanup(keep=1, confirm=True, grace="0s")
            assert report.keys() == {"confirmed", "datasets", "objects_removed", "objects_error"}
            assert (report["confirmed"], report["objects_error"]) == (True, None)
            with pytest.raises(InvalidInput):
                g.cleanup(keep=1, grace="soon")
