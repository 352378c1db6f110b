"""The methods of `Graph` that maintain its storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.api.access import Address
from omnigraph.api.results.commits import At
from omnigraph.engine.engine_choice import Engine
from omnigraph.errors import InvalidInput
from omnigraph.graph.progress import Progress
from omnigraph.maintain.backup.copy_report import CopyReport, Verification
from omnigraph.maintain.verification.verify_options import VerifyOptions

if TYPE_CHECKING:
    from omnigraph.api.results.maintenance_reports import Index, Optimized, Repair
    from omnigraph.maintain.settings import GraphSettings, RetentionInput
    from omnigraph.maintain.verification.report import VerifyReport


@dataclass(frozen=True, slots=True)
class CleanupOptions:
    """The arguments of `Graph.cleanup`."""

    keep: int | None = None
    older_than: str | timedelta | None = None
    confirm: bool = False
    grace: str | timedelta | None = None


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """The arguments of `Graph.optimize`."""

    branch: str = "main"
    engine: Engine = "auto"
    message: str | None = None
    actor: str | None = None
    progress: Progress | None = None
    spark: Any = None


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """The arguments of `Graph.backup` besides the target."""

    since: str | None = None
    storage_options: Mapping[str, str] | None = None
    durability: Literal["full", "os"] = "full"
    verify: Verification = "quick"
    skip_damaged: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """The arguments of `Graph.repair`."""

    confirm: bool = False
    force: bool = False
    reset_branch: str | None = None
    to: str | None = None


class GraphMaintenance(ABC):
    """Settings, garbage collection, compaction, indexes, verification, repair and backup."""

    def settings(self) -> GraphSettings:
        """Return the settings of the graph, which all processes that use it share.

        >>> import omnigraph as og
        >>> og.init("memory://docs-settings", schema="node City { name: String @key }").settings().retention.keep
        1000
        """
        return self._settings()

    def set_settings(self, *, retention: RetentionInput) -> GraphSettings:
        """Change the settings of the graph and return them.

        `retention` states which commits keep their data when upkeep collects garbage: ``"default"``, ``"forever"``,
        a duration such as ``"1h"``, or fields such as ``{"keep": 1000, "older_than": "1h", "thinned": "30d"}``. The
        newest `keep` commits of each branch keep their data, and so do commits that were current within
        `older_than`. Of the commits before them, the last one of each minute of the last hour, of each hour of the
        last day, and of each day within `thinned` keeps its data. Fields that are not given have their default.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-set-settings", schema="node City { name: String @key }")
        >>> g.set_settings(retention={"keep": 1000, "older_than": "1h"}).to_json()
        {'retention': {'keep': 1000, 'older_than': '1h', 'thinned': '30d'}}
        """
        return self._set_settings(retention)

    def cleanup(
        self,
        keep: int | None = None,
        older_than: str | timedelta | None = None,
        confirm: bool = False,
        *,
        grace: str | timedelta | None = None,
    ) -> dict[str, Any]:
        """Run garbage collection: remove data that only old commits need.

        Without `confirm` nothing is removed and the result is a preview. The newest `keep` commits of each branch
        keep their data, and so do commits that were current within `older_than`, such as ``"7d"``. With both, a
        commit loses its data only if neither keeps it. The head of a branch always keeps its data. Files younger
        than `grace` are kept, by default one hour, for readers of a state that was replaced. Concurrent writes are
        safe with any grace. Ages are measured with the clock of the storage system.

        The result has `confirmed`, `datasets` with the files, bytes and versions that were removed by type,
        `objects_removed` with the number of removed control objects, and `objects_error` if some of them remain.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-cleanup", schema="node City { name: String @key }")
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> g.cleanup(keep=10, older_than="7d")["confirmed"]
        False
        """
        if keep is None and older_than is None:
            raise InvalidInput(
                "cleanup needs `keep`, `older_than` or both", hint="such as keep=10, older_than='7d'"
            )
        return self._cleanup(CleanupOptions(keep, older_than, confirm, grace))

    def optimize(
        self,
        *,
        branch: str = "main",
        engine: Engine = "auto",
        message: str | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
        spark: Any = None,
    ) -> Optimized:
        """Compact the data of a branch and update its indexes, as one commit.

        Small fragments are compacted into large ones, deleted rows are dropped, and the indexes on ids, endpoints
        and declared properties are extended to all rows. Query results do not change, and other processes can
        read and write meanwhile. If there is nothing to do, nothing is committed. `engine` and `spark` are
        described in `load`; ``"auto"`` uses Spark for gigabytes of data.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-optimize", schema="node City { name: String @key }")
        >>> for name in ("Bern", "Rome"):
        ...     _ = g.load({"City": [{"name": name}]})
        >>> [(item.type_key, item.fragments_removed, item.indexes) for item in g.optimize().datasets]
        [('node:City', 2, ('id', 'name'))]
        >>> g.optimize().commit is None
        True
        """
        return self._optimize(OptimizeOptions(branch, engine, message, actor, progress, spark))

    def verify(
        self,
        *,
        quick: bool = False,
        all_commits: bool = False,
        branch: str | None = None,
        record: bool = False,
        engine: Engine = "auto",
        progress: Progress | None = None,
        spark: Any = None,
    ) -> VerifyReport:
        """Check that the graph in storage is complete and unaltered, and report the extent of any damage.

        The manifest, the lineage and the heads of all branches are checked, or of one `branch`; with `all_commits`
        every commit whose data is retained. Each file must exist and have its recorded size and digest. The number
        of rows, ids, unique values and the endpoints of edges are checked too. `quick` reads no contents: it checks
        existence, sizes and numbers of rows. `record` adds the digests of undamaged files that have none. `engine`
        and `spark` are described in `load`; ``"auto"`` uses Spark for gigabytes of data.

        Damage is reported and not raised. `VerifyReport.branches` has the newest intact commit of each branch,
        which `repair` can reset the branch to.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-verify", schema="node City { name: String @key }")
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> report = g.verify()
        >>> report.ok, report.commits, report.rows
        (True, 1, 1)
        """
        return self._verify(VerifyOptions(quick, all_commits, branch, record, engine), progress, spark)

    def repair(
        self,
        confirm: bool = False,
        *,
        force: bool = False,
        reset_branch: str | None = None,
        to: str | None = None,
    ) -> Repair:
        """Settle interrupted bulk writes. Without `confirm` the result is a preview.

        Complete writes are rolled forward, incomplete ones are discarded, and writes whose process may be alive are
        left alone. A write whose intent cannot be read is reported as ``refused``; `force` discards it. Opening a
        graph for writing and every write settle interrupted writes too, so there is rarely anything to do.

        A type of main whose files are damaged is classified as ``damaged``; `verify` describes the damage. Damaged
        indexes of any branch are built again from the rows, with the action ``rebuilt``.
        `reset_branch` gives a damaged branch the state of the commit `to` of its history, by default of its newest
        intact commit. This is a new commit, and the history stays. `Repair.reset` has the commits and rows that
        the branch loses. Nothing else is repaired in that call.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-repair", schema="node City { name: String @key }")
        >>> [(item["type_key"], item["action"]) for item in g.repair(confirm=True).datasets]
        [('node:City', 'no_op')]
        """
        if force and not confirm:
            raise InvalidInput("`force` requires `confirm`")
        if to is not None and reset_branch is None:
            raise InvalidInput("`to` requires `reset_branch`")
        if force and reset_branch is not None:
            raise InvalidInput("`force` does not apply to `reset_branch`")
        return self._repair(RepairOptions(confirm, force, reset_branch, to))

    def backup(
        self,
        target: Address,
        *,
        since: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        durability: Literal["full", "os"] = "full",
        verify: Verification = "quick",
        skip_damaged: bool = False,
        progress: Progress | None = None,
    ) -> CopyReport:
        """Copy the graph to another place, or bring an earlier backup there up to date.

        Other processes can read, write and collect garbage meanwhile. The backup has every commit of every branch
        as of one moment, with all data that the graph still has. With `since`, data of ancestors of that commit is
        left out. Only files that the target lacks are copied. An interrupted call leaves the earlier backup as it
        was, and the next call continues.

        `storage_options` are those of the target, by default those of this graph. ``verify="full"`` reads the
        copied files back, compares them with the recorded digests, and verifies the whole target. `progress` is
        called with ``"copy"`` and the bytes copied so far.

        A missing or damaged file of the graph raises `StorageError`. With `skip_damaged` everything else is copied,
        `CopyReport.damaged` lists the files that were left out, and `CopyReport.ok` is false. The next call tries
        them again.

        `omnigraph.open` opens a backup for reading, and `omnigraph.restore` makes a graph of it that can be
        written. Raises `Conflict` if the target holds anything else, or if another process writes to it.

        >>> import tempfile, omnigraph as og
        >>> folder = tempfile.mkdtemp()
        >>> g = og.init(f"{folder}/team", schema="node City { name: String @key }")
        >>> first = g.backup(f"{folder}/backup")
        >>> _ = g.load({"City": [{"name": "Bern"}]})
        >>> second = g.backup(f"{folder}/backup")
        >>> second.commits_added, second.files_copied < first.files_copied
        (1, True)
        >>> og.open(f"{folder}/backup").get("City", "Bern")
        {'id': 'Bern', 'name': 'Bern'}
        """
        options = BackupOptions(since, storage_options, durability, verify, skip_damaged, progress)
        return self._backup(target, options)

    def indexes(self, *, branch: str = "main", at: At = None) -> list[Index]:
        """Return the indexes of a state and the number of rows that each covers.

        >>> import omnigraph as og
        >>> og.init("memory://docs-indexes", schema="node City { name: String @key }").indexes()
        []
        """
        return self._indexes(branch, at)

    @abstractmethod
    def _settings(self) -> GraphSettings: ...

    @abstractmethod
    def _set_settings(self, retention: RetentionInput) -> GraphSettings: ...

    @abstractmethod
    def _cleanup(self, options: CleanupOptions) -> dict[str, Any]: ...

    @abstractmethod
    def _optimize(self, options: OptimizeOptions) -> Optimized: ...

    @abstractmethod
    def _verify(self, options: VerifyOptions, progress: Progress | None, spark: Any) -> VerifyReport: ...

    @abstractmethod
    def _repair(self, options: RepairOptions) -> Repair: ...

    @abstractmethod
    def _backup(self, target: Address, options: BackupOptions) -> CopyReport: ...

    @abstractmethod
    def _indexes(self, branch: str, at: At) -> list[Index]: ...
