"""Finds Lance calls that move a table's HEAD or delete its files.

Table versions are detached, and only the commit of `__manifest` makes them visible. A Lance call that commits
on its own would move a HEAD that nobody reads, and Lance's own cleanup does not know detached versions: it
deletes their files. Both would go unnoticed until data is missing, so they are refused by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.modules import Module

# `__manifest` lives on its HEAD lineage; the modules that own it may use what commits by itself.
MANIFEST = frozenset(
    {"store/manifest/file_swap.py", "store/manifest/manifest.py", "store/manifest/manifest_init.py"}
)

# Names that mean nothing else in this code base, so any call of them counts.
SELF_COMMITTING = frozenset(
    {
        "add_bases", "add_columns", "alter_columns", "cleanup_old_versions", "commit_batch",
        "commit_existing_index_segments", "compact_files", "create_index", "create_scalar_index",
        "delete_config_keys", "drop_columns", "drop_index", "initialize_mem_wal", "mem_wal_writer",
        "migrate_manifest_paths_v2", "optimize_indices", "replace_field_metadata", "replace_schema",
        "replace_schema_metadata", "restore", "truncate_table", "update_config", "update_field_metadata",
        "update_schema_metadata",
    }
)  # fmt: skip

# Names that dicts, files and our own classes have too; they count on something that is a dataset.
SELF_COMMITTING_ON_A_DATASET = frozenset(
    {
        "create_branch",
        "deep_clone",
        "delete",
        "drop",
        "insert",
        "merge",
        "shallow_clone",
        "update",
        "update_metadata",
    }
)

DATASET_MAKERS = frozenset({"LanceDataset", "checkout_version", "dataset", "write_dataset"})


def forbidden_lance_calls(module: Module) -> Iterator[str]:
    """A sentence for every call in the module that must not be there."""
    if module.path in MANIFEST:
        return
    in_store = module.package == "store"
    datasets = _names_of_datasets(module)
    mergers = _names_of_merge_builders(module)
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        why = _why_forbidden(node, in_store, datasets, mergers)
        if why:
            yield f"{module.path}:{node.lineno}: {why}"


def _why_forbidden(call: ast.Call, in_store: bool, datasets: set[str], mergers: set[str]) -> str | None:
    name = _called_name(call)
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name in SELF_COMMITTING and receiver is not None:
        return f"{name} commits on its own"
    if name in SELF_COMMITTING_ON_A_DATASET and receiver is not None and _is_dataset(receiver, datasets):
        return f"{name} on a dataset commits on its own"
    if name == "write_dataset" and not (in_store and _creates(call)):
        return "write_dataset moves a HEAD; only store creates tables, with mode='create'"
    if name == "merge_insert" and not in_store:
        return "merge_insert belongs to store"
    if name == "execute" and receiver is not None and _is_merge_builder(receiver, mergers):
        return "merge_insert(...).execute commits on its own; use execute_uncommitted"
    if name in ("commit", "execute") and receiver is not None and _last_name(receiver) == "Compaction":
        return f"Compaction.{name} commits on its own"
    if name == "commit" and receiver is not None and _commits_a_dataset(receiver, datasets):
        if not in_store:
            return "commits of datasets belong to store"
        if not _has_keyword(call, "detached", True):
            return "a table commit without detached=True moves its HEAD"
    return None


def _called_name(call: ast.Call) -> str | None:
    return _last_name(call.func)


def _last_name(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=func):
            return _last_name(func)
    return None


def _is_dataset(node: ast.expr, datasets: set[str]) -> bool:
    """Whether an expression is a dataset, by what made it or by what it is called."""
    if isinstance(node, ast.Call):
        return _called_name(node) in DATASET_MAKERS
    name = _last_name(node)
    if name is None:
        return False
    plain = name.lower().lstrip("_")
    return name in datasets or plain in ("ds", "dataset") or plain.endswith(("_ds", "_dataset"))


def _commits_a_dataset(node: ast.expr, datasets: set[str]) -> bool:
    return _last_name(node) == "LanceDataset" or _is_dataset(node, datasets)


def _names_of_datasets(module: Module) -> set[str]:
    """Variables assigned from a dataset, and arguments annotated as one."""
    found: set[str] = set()
    annotated = "LanceDataset" in module.text
    for node in module.nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value) if (
                _called_name(value) in DATASET_MAKERS
            ):
                found.add(name)
            case ast.arg(arg=name, annotation=ast.expr() as annotation) if (
                annotated and "LanceDataset" in ast.unparse(annotation)
            ):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if (
                annotated and "LanceDataset" in ast.unparse(annotation)
            ):
                found.add(name)
    return found


def _names_of_merge_builders(module: Module) -> set[str]:
    return {
        target.id
        for node in module.nodes
        if isinstance(node, ast.Assign) and _is_merge_builder(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_merge_builder(node: ast.expr, known: set[str]) -> bool:
    """Whether a chain of calls such as `ds.merge_insert("id").when_matched_update_all()` starts a merge."""
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Call):
            if _called_name(node) == "merge_insert":
                return True
            node = node.func
        else:
            node = node.value
    return isinstance(node, ast.Name) and node.id in known


def _creates(call: ast.Call) -> bool:
    return _has_keyword(call, "mode", "create")


def _has_keyword(call: ast.Call, name: str, value: object) -> bool:
    return any(
        keyword.arg == name and isinstance(keyword.value, ast.Constant) and keyword.value.value == value
        for keyword in call.keywords
    )
