"""The pipeline runs of a local graph: the state and the lineage that its commits hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph.errors import NotFound

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.graph.repository import Repository
    from omnigraph.store.manifest.records import CommitRecord


class LocalRuns:
    """Reads the runs of pipelines."""

    def __init__(self, repository: Repository, authorizer: Authorizer) -> None:
        self._repository = repository
        self._authorizer = authorizer

    def last_runs(self, branch: str) -> Mapping[str, str]:
        """Return the commit of the last run of each pipeline on a branch, by the name of the pipeline."""
        self._authorizer.authorize("read", branch)
        return self._repository.snapshot(branch).commit.runs

    def catalog(self, branch: str) -> Catalog:
        """Return the schema of a branch."""
        self._authorizer.authorize("read", branch)
        return self._repository.snapshot(branch).catalog

    def commit_of(self, commit_id: str) -> CommitRecord:
        """Return the commit of a run. Its `run` is the record of the run.

        Raises `NotFound` if no pipeline made the commit.
        """
        self._authorizer.authorize_commit_id("read", commit_id)
        record = self._repository.commit(commit_id)
        if not record.run:
            raise NotFound(
                f"commit '{commit_id}' was not made by a pipeline", details={"commit_id": commit_id}
            )
        return record
