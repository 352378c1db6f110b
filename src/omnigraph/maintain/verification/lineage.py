"""Checks of the lineage: registry, heads, commits, parents, sequence numbers and schemas agree with each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import OmnigraphError
from omnigraph.maintain.verification.report import Damage, DamageKind
from omnigraph.store.manifest.manifest import PATH
from omnigraph.store.manifest.manifest_inspection import ManifestDamage, ManifestInspection
from omnigraph.store.manifest.records import CommitRecord, HeadRecord, encode_body

RESTORE = "restore the file from a backup"
REBUILD_INDEX = "run `omnigraph repair --confirm`, which builds the index again from the rows"
REPAIR_MANIFEST = "run `omnigraph repair --confirm`, which rebuilds it from the other files"


def reset_remedy(branch: str) -> str:
    """Return what to do about a branch whose head is damaged."""
    return f"restore the file from a backup, or run `omnigraph repair --reset-branch {branch}`"


@dataclass(frozen=True, slots=True)
class _Link:
    """The place of a commit in the lineage, and a hash of the whole record."""

    parent: str | None
    merged_parent: str | None
    sequence: int
    created_at: int
    record: int


class Lineage:
    """The commits of a graph, without their tables, and the catalogs of their schemas."""

    def __init__(self, inspection: ManifestInspection) -> None:
        self._inspection = inspection
        self._links: dict[str, _Link] = {}
        self._newest: dict[str, CommitRecord] = {}
        self._catalogs: dict[str, Catalog | None] = {}
        self.schemas: set[str] = set()
        for commit in inspection.commits():
            self._links[commit.id] = _Link(
                commit.parent,
                commit.merged_parent,
                commit.sequence,
                commit.created_at,
                _hash(commit),
            )
            self.schemas.add(commit.schema)
            known = self._newest.get(commit.incarnation)
            if known is None or commit.sequence > known.sequence:
                self._newest[commit.incarnation] = commit

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, commit_id: str) -> bool:
        return commit_id in self._links

    def newest_of(self, incarnation: str) -> CommitRecord | None:
        """Return the newest commit that was made on a branch, by its sequence number; None if there is none."""
        return self._newest.get(incarnation)

    def catalog(self, schema: str) -> Catalog | None:
        """Return the catalog of a schema; None if it is missing or cannot be parsed."""
        if schema not in self._catalogs:
            try:
                self._catalogs[schema] = Catalog.from_json(json.loads(self._inspection.schemas[schema]))
            except (OmnigraphError, ValueError, KeyError, TypeError, AttributeError):
                self._catalogs[schema] = None
        return self._catalogs[schema]

    def branches(self) -> dict[str, str]:
        """Return the incarnation of each branch. If entries of branches cannot be read, heads name the branches."""
        branches = {name: entry.incarnation for name, entry in self._inspection.branches.items()}
        if not self._inspection.has_all_branches:
            branches |= {head.branch: head.incarnation for head in self._inspection.heads.values()}
        return dict(sorted(branches.items()))

    def damage(self) -> Iterator[Damage]:
        """Yield what is wrong with the files of `__manifest` and with the records in them."""
        branches = self.branches()
        for item in self._inspection.damage:
            yield self._file_damage(item, branches)
        for name, incarnation in branches.items():
            yield from self._check_head(name, incarnation)
        known = {head.incarnation for head in self._inspection.heads.values()}
        for incarnation in sorted(known - set(branches.values())):
            head = self._inspection.heads[incarnation]
            yield _damage("manifest", f"there is no entry of branch '{head.branch}'", head.commit.id)
        if not self._inspection.unreadable("commit"):
            yield from self._check_links()
            for name, entry in self._inspection.tags.items():
                if entry.commit not in self._links:
                    problem = f"commit {entry.commit} of tag '{name}' does not exist"
                    yield replace(_damage("lineage", problem, entry.commit), tags=(name,))
        for schema in sorted(self.schemas | {item.commit.schema for item in self._inspection.heads.values()}):
            if self.catalog(schema) is None and not self._is_in_damaged_file(schema):
                yield _damage("manifest", f"schema {schema} is missing or cannot be parsed")

    def _is_in_damaged_file(self, schema: str) -> bool:
        return any(file.parts[0] == schema for file in self._inspection.unreadable("schema"))

    def _check_head(self, name: str, incarnation: str) -> Iterator[Damage]:
        head = self._inspection.heads.get(incarnation)
        if head is None:
            entry = self._inspection.branches.get(name)
            at_rest = entry is not None and entry.commit is not None
            if at_rest and self._inspection.unreadable("commit"):
                # The row of its commit is in a damaged file of the log.
                yield _damage(
                    "manifest",
                    f"the head of branch '{name}' is in a damaged file of the log",
                    branches=(name,),
                    remedy=reset_remedy(name),
                )
            elif self._inspection.view.head_file(incarnation) is None:
                yield _damage(
                    "manifest", f"branch '{name}' has no head", branches=(name,), remedy=reset_remedy(name)
                )
            return
        if head.branch != name:
            yield _damage(
                "manifest", f"the head of branch '{name}' names branch '{head.branch}'", branches=(name,)
            )
        link = self._links.get(head.commit.id)
        if link is None and not self._inspection.unreadable("commit"):
            yield _damage(
                "lineage", f"the head of branch '{name}' has no row in the log", head.commit.id, (name,)
            )
        elif link is not None and link.record != _hash(head.commit):
            yield _damage(
                "lineage",
                f"the head of branch '{name}' differs from its row in the log",
                head.commit.id,
                (name,),
            )

    def _check_links(self) -> Iterator[Damage]:
        for id_, link in self._links.items():
            for parent in (link.parent, link.merged_parent):
                above = None if parent is None else self._links.get(parent)
                if parent is None:
                    continue
                if above is None:
                    yield _damage("lineage", f"the parent {parent} of commit {id_} does not exist", id_)
                elif above.created_at >= link.created_at:
                    yield _damage("lineage", f"commit {id_} is not newer than its parent {parent}", id_)
            first = None if link.parent is None else self._links.get(link.parent)
            if first is not None and link.sequence != first.sequence + 1:
                problem = f"commit {id_} has sequence number {link.sequence}, its parent has {first.sequence}"
                yield _damage("lineage", problem, id_)

    def _file_damage(self, item: ManifestDamage, branches: Mapping[str, str]) -> Damage:
        file, record = f"{PATH}/{item.name}", item.record
        every = tuple(sorted(branches))
        if record is None:
            newest = item.name.startswith("_versions/")
            return Damage(
                item.kind, item.problem, file, branches=every, remedy=REPAIR_MANIFEST if newest else RESTORE
            )
        match record.kind:
            case "head":
                names = tuple(
                    name for name, incarnation in branches.items() if incarnation == record.parts[0]
                )
                last = self.newest_of(record.parts[0])
                commits = () if last is None else (last.id,)
                remedy = reset_remedy(names[0]) if names else RESTORE
                return Damage(
                    item.kind, item.problem, file, None, None, names, commits, len(commits), 0, True, remedy
                )
            case "registry":
                return Damage(item.kind, item.problem, file, branches=every, remedy=REPAIR_MANIFEST)
            case "branches":
                problem = f"{item.problem}; the entries of {record.rows} branches cannot be read"
                return Damage(item.kind, problem, file, remedy=REPAIR_MANIFEST)
            case "tags":
                problem = f"{item.problem}; the entries of {record.rows} tags cannot be read"
                return Damage(item.kind, problem, file, remedy=REPAIR_MANIFEST)
            case "schema":
                names = tuple(sorted(_branches_with_schema(self._inspection.heads, record.parts[0])))
                return Damage(item.kind, item.problem, file, branches=names, remedy=RESTORE)
        problem = f"{item.problem}; {record.rows} rows of the log are lost"
        return Damage(item.kind, problem, file, commit_count=record.rows, blocks_reads=False, remedy=RESTORE)


def _hash(commit: CommitRecord) -> int:
    """Return a hash of a commit. The digests of its files and the record of its run are only in the log."""
    return hash(encode_body(commit.without_details().to_body()))


def _branches_with_schema(heads: Mapping[str, HeadRecord], schema: str) -> Iterator[str]:
    return (head.branch for head in heads.values() if head.commit.schema == schema)


def _branch(head: HeadRecord) -> str:
    return head.branch


def _damage(
    kind: DamageKind,
    problem: str,
    commit: str | None = None,
    branches: tuple[str, ...] = (),
    remedy: str = "restore the graph from a backup",
) -> Damage:
    commits = () if commit is None else (commit,)
    return Damage(
        kind, problem, PATH, branches=branches, commits=commits, commit_count=len(commits), remedy=remedy
    )
