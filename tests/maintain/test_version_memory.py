"""The remembered files of table versions equal those that were read, and memory follows what is retained."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.maintain import version_memory
from omnigraph.maintain.version_memory import VersionKey, VersionMemory
from omnigraph.store.tables.table_files import NeededFiles

KEYS = st.tuples(st.sampled_from(["nodes/a", "edges/b"]), st.integers(1, 9))
NAMES = st.frozensets(st.sampled_from([f"data/{number}.lance" for number in range(12)]))
FOLDERS = st.frozensets(st.sampled_from(["_indices/u", "data/0"]))
NEEDED = st.builds(NeededFiles, NAMES, FOLDERS)


@given(rounds=st.lists(st.tuples(st.dictionaries(KEYS, NEEDED), st.sets(KEYS)), max_size=6))
def test_union_of_remembered_versions_equals_the_union_of_their_files(
    rounds: list[tuple[dict[VersionKey, NeededFiles], set[VersionKey]]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(version_memory, "_MIN_UNUSED", 2)
        memory, model = VersionMemory(), dict[VersionKey, NeededFiles]()
        for added, kept in rounds:
            for key, needed in added.items():
                memory.add(key, needed)
                # The files of a version never change.
                model.setdefault(key, needed)
            assert memory.union(model) == NeededFiles.union(model.values())
            memory.keep_only(kept)
            model = {key: needed for key, needed in model.items() if key in kept}
            assert (len(memory), [key in memory for key in kept]) == (
                len(model),
                [key in model for key in kept],
            )
            for key, needed in model.items():
                assert memory.union([key]) == needed


def test_names_that_no_version_has_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_memory, "_MIN_UNUSED", 8)
    memory = VersionMemory()
    for number in range(100):
        files = frozenset(f"data/{item}.lance" for item in range(number, number + 3))
        memory.add(("nodes/a", number), NeededFiles(files))
        memory.keep_only({("nodes/a", number)})
        assert len(memory._names) <= 2 * 3 + 8 + 3
        assert memory.union([("nodes/a", number)]).files == files


def test_versions_beyond_the_limit_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_memory, "_MAX_FILES", 3)
    memory = VersionMemory()
    for number in range(4):
        memory.add(("nodes/a", number), NeededFiles(frozenset({"data/a.lance", f"data/{number}.lance"})))
    assert [("nodes/a", number) in memory for number in range(4)] == [True, False, False, False]
