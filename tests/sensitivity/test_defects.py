"""The planted defects themselves stay usable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sensitivity.defects import Defect, all_defects, apply, copy_tree

DEFECTS = all_defects()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree to patch."""
    folder = tmp_path_factory.mktemp("tree")
    copy_tree(folder)
    return folder


def test_there_are_planted_defects() -> None:
    assert len(DEFECTS) >= 12


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda item: item.name)
def test_a_planted_defect_still_applies_and_says_what_must_catch_it(defect: Defect, tree: Path) -> None:
    assert defect.breaks
    assert defect.tests
    applied = apply(defect, tree)
    assert applied.returncode == 0, applied.stderr
    assert apply(defect, tree, reverse=True).returncode == 0
