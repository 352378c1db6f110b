"""Inspection of `__manifest` that does not stop at damage: every file is checked and read on its own.

Normal reads raise at the first file that is damaged. An inspection lists all damaged files and returns the records
of the others. If the newest version cannot be opened, the newest version that can be opened is inspected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.store.file_digests import FileDigest, read_stored_file
from omnigraph.store.file_verification import ExpectedFile, FileDamage, check_file
from omnigraph.store.lance.lance_files import parse_version_file, transaction_file, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.bucket_entries import parse_bucket
from omnigraph.store.manifest.manifest import PATH, Manifest, NotAGraph
from omnigraph.store.manifest.manifest_errors import damaged_file, has_lost_versions
from omnigraph.store.manifest.manifest_files import BUCKETS, TAGS, ManifestFile
from omnigraph.store.manifest.manifest_view import ManifestView, require_version
from omnigraph.store.manifest.recorded_files import RecordedFiles
from omnigraph.store.manifest.records import Body, BranchEntry, CommitRecord, HeadRecord, Registry, TagEntry
from omnigraph.store.manifest.row_files import SupersededFile
from omnigraph.store.manifest.version_check import differs_from_tag, find_alteration
from omnigraph.store.manifest.version_digests import read_version_digests, record_stored_version
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.object_store import ObjectStore

T = TypeVar("T")

# The newest version file is compared with so many before it.
_VERSIONS_BEFORE = 2
# The number of times an inspection begins again because files were replaced and removed meanwhile.
_MAX_INSPECTIONS = 10


@dataclass(frozen=True, slots=True)
class ManifestDamage:
    """A damaged file of `__manifest`. `name` is relative to it, `record` describes a data file by its name."""

    kind: FileDamage
    name: str
    problem: str
    record: ManifestFile | None = None


class ManifestInspection:
    """The records of `__manifest` that can be read, and its damaged files.

    `registry` is None if it cannot be read. `branches` and `tags` are the entries that can be read, by name.
    `heads` are by incarnation, `schemas` by id. `unrecorded` is the number of files without a digest. `files` and
    `bytes_read` count what was checked.
    """

    def __init__(self, root: LanceRoot, objects: ObjectStore, *, quick: bool = False) -> None:
        self._objects = objects
        self._quick = quick
        self._is_visible = objects.location.scheme != "memory"
        for _ in range(_MAX_INSPECTIONS):
            self._inspect(root)
            missing = any(item.kind == "missing" for item in self.damage)
            if not missing or self.manifest.refresh().version == self.view.version:
                break
            # Files of an old version are removed some time after newer versions were made.

    def _inspect(self, root: LanceRoot) -> None:
        self.damage: list[ManifestDamage] = []
        self.files = 0
        self._newer: set[int] = set()
        self._is_recorded = False
        self.bytes_read = 0
        self.unrecorded = 0
        self._stored = self._list()
        self.manifest = self._open(root)
        # Again: the version that was opened may be newer than the first listing.
        self._stored = self._list()
        self.view: ManifestView = self.manifest.view
        if not self.view.of_kind("registry") and self.view.of_kind("unfinished"):
            raise NotAGraph(is_incomplete=True)
        self._damaged: set[str] = set()
        self._check_version_files()
        for file in self.view.files:
            self._check_data_file(file)
        self._check_named_without_digest()
        self.registry: Registry | None = self._read_registry()
        self.branches: Mapping[str, BranchEntry] = self._read_branches()
        self.tags: dict[str, TagEntry] = self._read_buckets(TAGS, TagEntry.from_body)
        self.heads: Mapping[str, HeadRecord] = self._read_heads()
        self.schemas: Mapping[str, str] = self._read_schemas()

    def _list(self) -> dict[str, ObjectInfo]:
        listed = self._objects.list(PATH) if self._is_visible else iter(())
        return {item.key.removeprefix(f"{PATH}/"): item for item in listed}

    def commits(self) -> Iterator[CommitRecord]:
        """Yield every commit that can be read, in no particular order. One file is read at a time."""
        yielded: set[str] = set()
        try:
            for file in self.view.of_kind("commit"):
                for record in self._records(file, CommitRecord.from_body):
                    yielded.add(record.id)
                    yield record
        except SupersededFile:
            for record in self.manifest.all_commits(self.manifest.refresh()):
                if record.id not in yielded:
                    yield record

    def recorded_files(self) -> Mapping[tuple[str, str], FileDigest]:
        """Return the digests of files by table path and file name, as far as their rows can be read."""
        readable = [file for file in self.view.files if file.name not in self._damaged]
        return RecordedFiles().of(readable, lambda file: self.manifest.rows(self.view, file))

    @property
    def newer_versions(self) -> list[int]:
        """The versions after the inspected one that exist or were recorded: all of them are damaged. Ascending."""
        return sorted(self._newer)

    @property
    def unfinished_swaps(self) -> list[str]:
        """The transaction files of swaps that follow the newest version and have no result."""
        prefix = f"_transactions/{self.view.version}-"
        return sorted(name for name in self._stored if name.startswith(prefix))

    def unreadable(self, kind: str) -> list[ManifestFile]:
        """Return the damaged files of a kind, such as ``head``."""
        return [file for file in self.view.of_kind(kind) if file.name in self._damaged]

    # --- the version -------------------------------------------------------------------------------------

    def _open(self, root: LanceRoot) -> Manifest:
        try:
            manifest = Manifest(root, root.open(PATH))
            manifest.refresh()
            return manifest
        except NotFound as error:
            if not any(name.startswith("_versions/") for name in self._stored):
                if has_lost_versions(root):
                    raise damaged_file(f"{PATH}/_versions", "every version is missing") from error
                raise NotAGraph(is_incomplete=False) from error
            failure: OmnigraphError = error
        except OmnigraphError as error:
            _raise_refusal(error)
            failure = error
        versions = sorted(self._versions(), reverse=True)
        for version in versions:
            try:
                manifest = Manifest(root, root.open(PATH, version))
                require_version(manifest.view.dataset, version)
            except OmnigraphError as error:
                _raise_refusal(error)
                self._add("unreadable", version_file(version), error.message)
                self._newer.add(version)
                continue
            return manifest
        raise StorageError(
            f"no version of {PATH} can be read: {failure.message}",
            details={"file": PATH},
            hint="restore the graph from a backup",
        )

    def _versions(self) -> Iterator[int]:
        versions = (parse_version_file(name) for name in self._stored)
        return (version for version in versions if version is not None)

    def _check_version_files(self) -> None:
        """Check the manifest file and the transaction file of the newest version, and older ones with a digest."""
        if not self._is_visible:
            return
        recorded = read_version_digests(self._objects)
        current = self.view.version
        self._is_recorded = current in recorded
        known = [item.name for item in self.damage]
        for version in sorted({*self._versions(), current}):
            name = version_file(version)
            digest = recorded.get(version)
            if name in known or (digest is None and version != current):
                continue
            size, text = (None, None) if digest is None else (digest.size, digest.digest)
            self._check(ExpectedFile(PATH, name, size, text), None)
        newer = [version for version in recorded if version > current and version_file(version) not in known]
        # A commit that was made meanwhile has a line in the log, and its file exists.
        newer = [version for version in newer if not self._exists(version_file(version))]
        self._newer.update(newer)
        for version in sorted(newer):
            self._add(
                "missing", version_file(version), "the file does not exist; the commit it holds is lost"
            )
        self._check_transaction()

    def _exists(self, name: str) -> bool:
        try:
            self._objects.head(f"{PATH}/{name}")
        except NotFound:
            return False
        return True

    def _check_transaction(self) -> None:
        """Compare the transaction file of the newest version with the copy inside the manifest file."""
        try:
            transaction = self.view.dataset.read_transaction(self.view.version)
        except (OSError, ValueError, RuntimeError) as error:
            self._add(
                "unreadable", version_file(self.view.version), f"its transaction cannot be read: {error}"
            )
            return
        if transaction is None:
            return
        names = [transaction_file(transaction, self.view.version - 1), transaction_file(transaction)]
        name = next((item for item in names if item in self._stored), names[0])
        self.files += 1
        version = self._objects.get(f"{PATH}/{version_file(self.view.version)}").data
        data = None
        if name in self._stored:
            data = self._objects.get(f"{PATH}/{name}").data
            self.bytes_read += len(data)
        elif any(item.startswith("_transactions/") for item in self._stored):
            # A copy of the files that readers need has no transaction files at all.
            self._add("missing", name, "the file does not exist")
        # The copy has its length before it, so that a truncated file does not match.
        if data is not None and len(data).to_bytes(4, "little") + data not in version:
            self._add("altered", name, "it differs from the copy in its version")
        elif not self._is_recorded:
            self._check_unrecorded_version(version, names, data, self._tag(name))

    def _check_unrecorded_version(
        self, data: bytes, names: Collection[str], transaction: bytes | None, tag: str | None
    ) -> None:
        """Compare the newest version file with everything that states the same as it does."""
        name = version_file(self.view.version)
        problem = find_alteration(self.view.version, data, names, transaction, self._versions_before())
        if problem is None and transaction is not None:
            is_altered = differs_from_tag(data, self._tag(name), transaction, tag)
            problem = "its content differs from its entity tag" if is_altered else None
        if problem is not None:
            self._add("altered", name, problem)

    def _tag(self, name: str) -> str | None:
        return self._stored[name].etag if name in self._stored else None

    def _versions_before(self) -> list[bytes]:
        """Return the version files before the newest one, as far as they can be read."""
        found = []
        for version in range(self.view.version - _VERSIONS_BEFORE, self.view.version):
            if version_file(version) in self._stored:
                with suppress(NotFound):
                    found.append(self._objects.get(f"{PATH}/{version_file(version)}").data)
        return found

    def record_version(self, root: LanceRoot) -> int:
        """Record the digest of the newest version file if it has none; return 1 if the inspected one had none.

        A version that was made after the inspection is recorded instead. Call this after the recording of other
        digests, which makes a version.
        """
        version = self.manifest.refresh().version
        is_sound = not any(item.name == version_file(version) for item in self.damage)
        if not self._is_visible or not is_sound or version in read_version_digests(self._objects):
            return 0
        record_stored_version(root, self._objects, version)
        return int(not self._is_recorded)

    # --- data files --------------------------------------------------------------------------------------

    def _check_data_file(self, file: ManifestFile) -> None:
        name = f"data/{file.name}"
        if self._is_visible:
            # The manifest states the size.
            self._check(ExpectedFile(PATH, name, file.size, file.digest), file)
        if file.name in self._damaged:
            return
        try:
            rows = self.manifest.rows(self.view, file)
        except OmnigraphError as error:
            _raise_refusal(error)
            self._add("unreadable", name, error.message, file)
            return
        if len(rows) != file.rows:
            self._add("altered", name, f"it has {len(rows)} rows, expected {file.rows}", file)

    def _check_named_without_digest(self) -> None:
        """Compare the data files of formats 1 and 2, whose names have no digest, with those recorded later."""
        files = self._named_without_digest()
        recorded = self.recorded_files() if files else {}
        for file in files:
            digest = recorded.get((PATH, f"data/{file.name}"))
            if digest is not None:
                self.files -= 1
                self.unrecorded -= 1
                self._check(ExpectedFile(PATH, digest.name, digest.size, digest.digest), file)

    def _named_without_digest(self) -> list[ManifestFile]:
        """Return the intact data files whose names have no digest."""
        files = self.view.files if self._is_visible else ()
        return [file for file in files if file.digest is None and file.name not in self._damaged]

    def digests_to_record(self) -> list[FileDigest]:
        """Read the data files that have no digest at all, and return their digests."""
        recorded = self.recorded_files()
        names = [f"data/{file.name}" for file in self._named_without_digest()]
        return [
            read_stored_file(self._objects, PATH, name)[0] for name in names if (PATH, name) not in recorded
        ]

    def _check(self, expected: ExpectedFile, record: ManifestFile | None) -> None:
        stored: ObjectInfo | None = self._stored.get(expected.name)
        self.files += 1
        self.unrecorded += expected.digest is None
        result = check_file(self._objects, expected, stored, quick=self._quick)
        self.bytes_read += 0 if self._quick else result.size
        if result.damage is not None:
            self._add(result.damage, expected.name, result.problem, record)

    def _add(self, kind: FileDamage, name: str, problem: str, record: ManifestFile | None = None) -> None:
        self.damage.append(ManifestDamage(kind, name, problem, record))
        if record is not None:
            self._damaged.add(record.name)

    # --- records -----------------------------------------------------------------------------------------

    def _read_registry(self) -> Registry | None:
        files = self.view.of_kind("registry")
        if len(files) != 1:
            name = version_file(self.view.version)
            self._add("unreadable", name, f"it names {len(files)} registry files, expected 1")
        return next((record for file in files for record in self._records(file, Registry.from_body)), None)

    def _read_heads(self) -> dict[str, HeadRecord]:
        records = [
            item for file in self.view.of_kind("head") for item in self._records(file, HeadRecord.from_body)
        ]
        heads = {record.incarnation: record for record in records}
        for name, entry in self.branches.items():
            if entry.commit is not None:
                # Damage of the log is reported with its files.
                with suppress(StorageError):
                    heads[entry.incarnation] = self.manifest.head_of(self.view, name, entry)
        return heads

    def _read_branches(self) -> dict[str, BranchEntry]:
        if not self.view.buckets.files:
            return dict((self.registry.legacy_branches or {}) if self.registry is not None else {})
        return self._read_buckets(BUCKETS, BranchEntry.from_body)

    def _read_buckets(self, kind: str, parse: Callable[[Body], T]) -> dict[str, T]:
        found: dict[str, T] = {}
        for file in self.view.bucket_index(kind).files:
            entries = self._records(file, parse)
            if entries:
                bucket = parse_bucket(file, self.manifest.rows(self.view, file))
                found |= dict(zip(bucket.names, entries, strict=True))
        return found

    @property
    def has_all_branches(self) -> bool:
        """Whether every entry of a branch can be read."""
        is_legacy = not self.view.buckets.files
        return self.registry is not None if is_legacy else not self.unreadable(BUCKETS)

    def _read_schemas(self) -> dict[str, str]:
        schemas: dict[str, str] = {}
        for file in self.view.of_kind("schema"):
            if file.name not in self._damaged:
                rows = self.manifest.rows(self.view, file)
                schemas |= {key.partition(":")[2]: text for key, text in rows.items()}
        return schemas

    def _records(self, file: ManifestFile, parse: Callable[[Body], T]) -> list[T]:
        """Return the records of a file; a file that does not hold such records is added to the damage."""
        if file.name in self._damaged:
            return []
        try:
            return [parse(json.loads(text)) for text in self.manifest.rows(self.view, file).values()]
        except (OmnigraphError, ValueError, KeyError, TypeError, AttributeError) as error:
            _raise_refusal(error)
            self._add("unreadable", f"data/{file.name}", f"its rows cannot be parsed: {error}", file)
            return []


def _raise_refusal(error: Exception) -> None:
    """Raise an error of storage that says nothing about the file."""
    if isinstance(error, StorageError) and error.is_refusal:
        raise error
