"""Buckets of branches: ranges of names, splits and file names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.store.manifest import name_buckets
from omnigraph.store.manifest.bucket_entries import select_names
from omnigraph.store.manifest.manifest_files import BUCKETS, bucket_name, parse_file
from omnigraph.store.manifest.manifest_rows import StoredRows
from omnigraph.store.manifest.name_buckets import (
    MAX_ENTRIES,
    Bucket,
    BucketIndex,
    shortest_separator,
)

# Seven eighths of a bucket stay in it when names in ascending order split it.
FILLED = MAX_ENTRIES + 1 - (MAX_ENTRIES + 1) // 8
NAMES = st.text(st.characters(min_codepoint=33, exclude_categories=["Cs"]), min_size=1, max_size=12)


def index_of(buckets: list[Bucket]) -> BucketIndex:
    files = [
        parse_file(number, bucket_name(BUCKETS, bucket.lower), len(bucket.rows))
        for number, bucket in enumerate(buckets)
    ]
    return BucketIndex(reversed(files))


@given(st.text(max_size=20))
def test_bound_in_a_file_name_reads_back(bound: str) -> None:
    file = parse_file(0, bucket_name(BUCKETS, bound), 1)
    assert file.lower_bound == bound


@given(NAMES, NAMES)
def test_separator_is_between_two_names(first: str, second: str) -> None:
    before, after = sorted((first, second))
    if before != after:
        assert before < shortest_separator(before, after) <= after


@given(st.sets(NAMES, min_size=1, max_size=60))
def test_buckets_of_many_names_cover_every_name(names: set[str]) -> None:
    buckets = [Bucket("")]
    with_limit = name_buckets.MAX_ENTRIES
    try:
        name_buckets.MAX_ENTRIES = 4  # type: ignore[misc]
        for name in names:
            position = index_of(buckets).find(name)
            buckets[position : position + 1] = buckets[position].with_row(name, "{}").split(name)
            buckets.sort(key=lambda bucket: bucket.lower)
    finally:
        name_buckets.MAX_ENTRIES = with_limit  # type: ignore[misc]
    index = index_of(buckets)
    assert index.bounds[0] == ""
    assert all(name in buckets[index.find(name)].names for name in names)
    assert sum(len(bucket.rows) for bucket in buckets) == len(names)
    assert max(len(bucket.rows) for bucket in buckets) <= 4


def test_names_in_ascending_order_fill_their_buckets() -> None:
    buckets = [Bucket("")]
    for number in range(3 * MAX_ENTRIES):
        name = f"agent-{number:05}"
        buckets[-1:] = buckets[-1].with_row(name, "{}").split(name)
    assert {len(bucket.rows) for bucket in buckets[:-1]} == {FILLED}


def test_names_with_a_long_common_beginning_stay_in_one_bucket() -> None:
    names = [f"branch:{'x' * 100}{number:04}" for number in range(MAX_ENTRIES + 1)]
    bucket = Bucket("", StoredRows.encode((name, "{}") for name in names))
    assert bucket.split() == [bucket]


@given(st.sets(NAMES, max_size=30), st.text(max_size=3), st.none() | NAMES)
def test_selected_names_are_those_with_the_prefix_after_the_name(
    names: set[str], prefix: str, after: str | None
) -> None:
    expected = [name for name in sorted(names) if name.startswith(prefix) and (after is None or name > after)]
    assert list(select_names(sorted(names), prefix, after)) == expected


def test_ascending_names_before_a_last_name_fill_their_buckets() -> None:
    buckets = [Bucket("").with_row("main", "{}")]
    for number in range(3 * MAX_ENTRIES):
        name = f"agent-{number:05}"
        position = index_of(buckets).find(name)
        buckets[position : position + 1] = buckets[position].with_row(name, "{}").split(name)
    assert {len(bucket.rows) for bucket in buckets[:-1]} == {FILLED}
