"""Addresses of graphs and their canonical form."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.errors import InvalidInput
from omnigraph.store.location import Location


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket//a///b/", "s3://bucket/a/b"),
        ("s3://bucket/a b/ü", "s3://bucket/a b/ü"),
        ("memory://name", "memory://name"),
        ("memory://name/sub/", "memory://name/sub"),
        ("file:///tmp/x%20y/../z", "/tmp/z"),
        ("file://localhost/tmp/a", "/tmp/a"),
        ("/tmp/100%25", "/tmp/100%25"),
    ],
)
def test_an_address_has_one_normal_form(uri: str, normal: str) -> None:
    assert Location.parse(uri).uri == normal


@pytest.mark.parametrize("uri", ["s3://bucket/a", "memory://name", "/tmp/a b"])
def test_the_normal_form_parses_to_itself(uri: str) -> None:
    location = Location.parse(uri)
    assert Location.parse(location.uri) == location


def test_a_relative_path_counts_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("graph") == Location.parse(str(tmp_path / "graph"))


def test_two_names_of_one_folder_are_one_location(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Location.parse(str(tmp_path / "link")) == Location.parse(str(tmp_path / "real"))


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://host/path",
        "s3://",
        "s3:///key",
        "s3://bucket/a/../b",
        "s3://bucket/a%20b",
        "s3://bucket/a?b",
        "s3://bucket/a#b",
        "memory://",
        "memory://a b",
        "file://otherhost/path",
        "file://relative",
        "nul\0byte",
    ],
)
def test_an_address_that_means_nothing_or_two_things_is_refused(uri: str) -> None:
    with pytest.raises(InvalidInput):
        Location.parse(uri)


def test_links_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InvalidInput, match="loop"):
        Location.parse(str(tmp_path / "loop"))


@pytest.mark.parametrize(
    "uri", ["s3://KEY:SECRET@bucket/y", "s3://KEY:SEC/RET@b/y", "s3://KEY:SECRET", "file://SECRET@h/x"]
)
def test_a_secret_in_an_address_is_not_repeated(uri: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Location.parse(uri)
    assert "SEC" not in str(caught.value)
    assert "RET" not in str(caught.value)


@pytest.mark.parametrize("root", ["s3://bucket", "s3://bucket/graph", "memory://name", "/tmp/graph"])
def test_a_child_is_below_its_parent(root: str) -> None:
    assert Location.parse(root).child("nodes", "01J").uri == f"{root}/nodes/01J"


@pytest.mark.parametrize("segment", ["", ".", "..", "a/b", "a?b", "a\0"])
def test_a_child_cannot_leave_its_parent(segment: str) -> None:
    with pytest.raises(InvalidInput):
        Location.parse("memory://name").child(segment)


@pytest.mark.parametrize("name", ["plain", "with space", "per%20cent", "hash#mark", "ünïcode", "question?"])
def test_lance_finds_a_local_location_under_any_name(tmp_path: Path, name: str) -> None:
    location = Location.parse(str(tmp_path / name)).child("table")
    lance.write_dataset(pa.table({"a": [1]}), location.lance_uri, mode="create")
    assert (tmp_path / name / "table" / "_versions").is_dir()
    assert lance.dataset(location.lance_uri).count_rows() == 1


def test_lance_shares_named_memory_and_keeps_names_apart() -> None:
    location = Location.parse("memory://location-test/graph").child("table")
    lance.write_dataset(pa.table({"a": [1]}), location.lance_uri, mode="create")
    assert lance.dataset(location.lance_uri).count_rows() == 1
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(Location.parse("memory://location-other/graph").child("table").lance_uri)
