"""Every planted defect can be planted, and the tests that must catch it exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sensitivity.defects import (
    Defect,
    DefectError,
    Edit,
    all_defects,
    missing_tests,
    moved_to,
    occurrences,
    planted,
)

DEFECTS = all_defects()


def test_there_are_planted_defects() -> None:
    assert len(DEFECTS) >= 147


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda item: item.name)
def test_planted_defect_applies_and_names_existing_tests(defect: Defect) -> None:
    texts = planted(defect)
    assert texts
    for file, text in texts.items():
        compile(text, file, "exec")
    assert defect.breaks
    assert defect.caught_by
    assert not missing_tests(defect)


def tree_of(folder: Path, **files: str) -> Path:
    (folder / "src").mkdir(parents=True)
    for name, text in files.items():
        (folder / "src" / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def defect_of(*edits: Edit) -> Defect:
    return Defect("one", "nothing", ("tests/test_one.py::test_one",), edits)


def test_edits_apply_to_the_unchanged_text(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, one="a\nb\nc\n")
    defect = defect_of(Edit("src/one.py", "c\n", "a\n"), Edit("src/one.py", "a\n", ""))
    assert planted(defect, tree) == {"src/one.py": "b\na\n"}


def test_lines_that_occur_twice_are_refused(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, one="a\na\n")
    with pytest.raises(DefectError, match="2 times"):
        planted(defect_of(Edit("src/one.py", "a\n", "b\n")), tree)


def test_edits_that_overlap_are_refused(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, one="a\nb\nc\n")
    with pytest.raises(DefectError, match="overlap"):
        planted(defect_of(Edit("src/one.py", "a\nb\n", ""), Edit("src/one.py", "b\nc\n", "")), tree)


def test_lines_that_moved_are_found_in_their_new_file(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, one="x\n", two="  a\nb\n")
    defect = defect_of(Edit("src/one.py", "  a\n", ""))
    assert moved_to(defect, "src/one.py", tree) == ["src/two.py"]
    with pytest.raises(DefectError, match=r"set `file` to that|src/two\.py"):
        planted(defect, tree)


def test_only_whole_lines_count() -> None:
    assert occurrences("ab\n b\nb\n", "b\n") == [6]


def test_a_renamed_test_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        "class TestA:\n    def test_b(self): ...\n", encoding="utf-8"
    )
    nodes = ("tests/test_one.py", "tests/test_one.py::TestA::test_b[x::y]", "tests/test_one.py::test_c")
    assert missing_tests(Defect("one", "nothing", nodes, ()), tmp_path) == ["tests/test_one.py::test_c"]
