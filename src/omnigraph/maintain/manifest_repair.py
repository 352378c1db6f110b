"""Repair of `__manifest`: a newest version or a registry that cannot be read stops every reader and writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from omnigraph.errors import Conflict, NotFound
from omnigraph.graph.format_version import OLDEST_SUPPORTED
from omnigraph.graph.publish import now_micros
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.manifest import PATH, NotAGraph, SwapLost
from omnigraph.store.manifest.manifest_files import BUCKETS, TAGS, new_id
from omnigraph.store.manifest.manifest_inspection import ManifestInspection
from omnigraph.store.manifest.manifest_rebuild import (
    damaged_versions,
    rebuild_buckets,
    rebuild_registry,
    rebuild_tags,
    rebuild_versions,
)
from omnigraph.store.manifest.records import Registry
from omnigraph.store.objects.object_store import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ManifestRepair:
    """A damaged part of `__manifest`: whether a repair can rebuild it, and whether this call has."""

    part: str
    problem: str
    can_rebuild: bool = True
    rebuilt: bool = False


def repair_manifest(root: LanceRoot, objects: ObjectStore, *, confirm: bool) -> list[ManifestRepair]:
    """Report damage of `__manifest` that stops readers and writers. With `confirm` rebuild what can be rebuilt.

    Only the newest version and the registry are rebuilt here. A head that cannot be read is replaced by a reset of
    its branch. Raises `NotFound` if there is no graph.
    """
    inspection = _inspect(root, objects)
    repairs: list[ManifestRepair] = []
    versions = damaged_versions(inspection)
    if versions:
        problem = f"the newest version ({versions[-1]}) cannot be read"
        if confirm:
            restored = rebuild_versions(root, objects, inspection)
            problem += f"; restored {len(restored)} commits" if restored else "; no commit could be restored"
            inspection = _inspect(root, objects)
        repairs.append(ManifestRepair(f"{PATH}/_versions", problem, rebuilt=confirm))
    if inspection.registry is None:
        if confirm:
            _rebuild_registry(root, objects, inspection)
            inspection = _inspect(root, objects)
        repairs.append(ManifestRepair(f"{PATH}/registry", "the registry cannot be read", rebuilt=confirm))
    buckets = inspection.unreadable(BUCKETS)
    if buckets:
        problem = f"the entries of {sum(file.rows for file in buckets)} branches cannot be read"
        if confirm:
            found = _swap(lambda: rebuild_buckets(root, objects, inspection))
            problem += f"; restored {len(found)} of them"
            inspection = _inspect(root, objects)
        repairs.append(ManifestRepair(f"{PATH}/branches", problem, rebuilt=confirm))
    tags = inspection.unreadable(TAGS)
    if tags:
        problem = f"the entries of {sum(file.rows for file in tags)} tags cannot be read"
        if confirm:
            found = _swap(lambda: rebuild_tags(root, objects, inspection))
            problem += f"; restored {len(found)} of them"
            inspection = _inspect(root, objects)
        repairs.append(ManifestRepair(f"{PATH}/tags", problem, rebuilt=confirm))
    names = {head.incarnation for head in inspection.heads.values()}
    lost = [file for file in inspection.view.of_kind("head") if file.parts[0] not in names]
    problem = "the head cannot be read; run `omnigraph verify` and reset the branch"
    return repairs + [ManifestRepair(f"{PATH}/data/{file.name}", problem, can_rebuild=False) for file in lost]


def _inspect(root: LanceRoot, objects: ObjectStore) -> ManifestInspection:
    try:
        return ManifestInspection(root, objects, quick=True)
    except NotAGraph as error:
        hint = "its initialization was interrupted: run init again" if error.is_incomplete else None
        raise NotFound(f"there is no graph at {objects.location}", hint=hint) from error


def _rebuild_registry(root: LanceRoot, objects: ObjectStore, inspection: ManifestInspection) -> None:
    commits = [commit.created_at for commit in inspection.commits()]
    now = now_micros()
    # The format of a graph whose only registry is lost is unknown. Migrations are repeated, which has no effect on
    # rows that have the newer format.
    default = Registry(OLDEST_SUPPORTED, new_id(), min(commits, default=now), epoch=now)
    _swap(lambda: rebuild_registry(root, objects, inspection, default))


def _swap(rebuild: Callable[[], T]) -> T:
    try:
        return rebuild()
    except SwapLost as error:
        raise Conflict("another process changed the branches or tags", hint="run repair again") from error
