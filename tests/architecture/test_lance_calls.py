"""Nothing moves a table's HEAD, and nothing runs Lance's own cleanup on a table."""

from __future__ import annotations

import importlib

import pytest

from tests.architecture.lance_calls import (
    MANIFEST,
    SELF_COMMITTING,
    SELF_COMMITTING_ON_A_DATASET,
    forbidden_lance_calls,
)
from tests.architecture.modules import Module, modules

FORBIDDEN_EVERYWHERE = [
    "ds.cleanup_old_versions()",
    "table.dataset.cleanup_old_versions(older_than=x)",
    "lance.dataset(uri).delete('a = 1')",
    "self._ds.update({'a': '1'})",
    "people_dataset.insert(rows)",
    "handle = lance.dataset(uri)\nhandle.delete('true')",
    "def f(handle: lance.LanceDataset):\n    handle.update({})",
    "def f(handle: 'LanceDataset | None'):\n    handle.merge(x, 'id')",
    "ds.merge_insert('id').execute(rows)",
    "ds.merge_insert('id').when_not_matched_insert_all().execute(rows)",
    "ds.add_columns({'a': '1'})",
    "ds.alter_columns({'path': 'a'})",
    "ds.drop_columns(['a'])",
    "ds.optimize.compact_files()",
    "ds.optimize.optimize_indices()",
    "ds.create_index('v', 'IVF_PQ')",
    "ds.create_scalar_index('a', 'BTREE')",
    "ds.checkout_version(3).restore()",
    "lance.write_dataset(rows, uri)",
    "lance.write_dataset(rows, uri, mode='append')",
    "write_dataset(rows, uri, mode='overwrite')",
    "lance.LanceDataset.commit(uri, operation)",
    "LanceDataset.commit(uri, operation, detached=False)",
    "LanceDataset.commit_batch(uri, transactions, detached=True)",
    "Compaction.commit(ds, rewrites)",
    "lance.optimize.Compaction.execute(ds, options)",
    "builder = ds.merge_insert('id')\nbuilder.execute(rows)",
]

FORBIDDEN_ONLY_ABOVE_STORE = [
    "ds.merge_insert('id').execute_uncommitted(rows)",
    "lance.write_dataset(empty, uri, mode='create')",
    "LanceDataset.commit(uri, operation, detached=True)",
]

HARMLESS = [
    "counts.update({'a': 1})",
    "graph.branches.delete('review')",
    "connection.execute('select 1')",
    "connection.commit()",
    "names.insert(0, 'a')",
    "fragment.delete('a = 1')",
    "Compaction.plan(ds, options)",
    "graph.optimize()",
    "ds.create_index_uncommitted('a', 'BTREE', fragment_ids=[1])",
]


def found(path: str, text: str) -> list[str]:
    return list(forbidden_lance_calls(Module(path, text)))


@pytest.mark.parametrize("text", FORBIDDEN_EVERYWHERE)
@pytest.mark.parametrize("path", ["store/tables/tables.py", "graph/transaction.py", "pipeline/ingest.py"])
def test_a_planted_self_committing_call_is_found(path: str, text: str) -> None:
    assert found(path, text)


@pytest.mark.parametrize("text", FORBIDDEN_ONLY_ABOVE_STORE)
def test_staging_calls_belong_to_store(text: str) -> None:
    assert found("store/tables/tables.py", text) == []
    assert found("load/split_staging.py", text)


@pytest.mark.parametrize("text", FORBIDDEN_EVERYWHERE)
def test_the_manifest_may_commit_on_its_head(text: str) -> None:
    assert [item for path in sorted(MANIFEST) for item in found(path, text)] == []


@pytest.mark.parametrize("text", HARMLESS)
def test_calls_that_only_look_alike_are_left_alone(text: str) -> None:
    assert found("store/tables/tables.py", text) == []
    assert found("load/split_staging.py", text) == []


def test_every_forbidden_name_still_exists_in_lance() -> None:
    # A renamed method would leave a guard that watches for something that no longer happens.
    # `lance.dataset` is also a function, so the module of that name is asked for explicitly.
    dataset = importlib.import_module("lance.dataset")
    known = {*dir(dataset.LanceDataset), *dir(dataset.DatasetOptimizer)}
    assert known >= SELF_COMMITTING | SELF_COMMITTING_ON_A_DATASET


def test_the_source_tree_makes_no_forbidden_call() -> None:
    assert [call for module in modules() for call in forbidden_lance_calls(module)] == []
