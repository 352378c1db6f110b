"""The history of a local graph."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from omnigraph.api.interface.graph_history import GraphHistory, LogOptions
from omnigraph.api.results.commits import At, Commit
from omnigraph.api.results.history import EntityVersion, PropertyOrigin
from omnigraph.api.results.maintenance_reports import Recovery

if TYPE_CHECKING:
    from omnigraph.api.local.authorizer import Authorizer
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot


class LocalHistory(GraphHistory):
    """`GraphHistory` over a repository."""

    _repository: Repository
    _authorizer: Authorizer

    def commit(self, id: str) -> Commit:  # noqa: A002 - the name is part of the API
        self._authorizer.authorize("read")
        return Commit.of(self._repository.commit(id))

    def recoveries(self) -> list[Recovery]:
        self._authorizer.authorize("read")
        return [Recovery.of(record) for record in reversed(self._repository.recoveries())]

    def _commits(self, options: LogOptions) -> list[Commit]:
        from omnigraph.graph.commit_log import LogFilter, select_commits
        from omnigraph.lang.temporal import epoch_micros
        from omnigraph.read.entity import named_table

        start = self._state(options.branch, options.at)
        wanted = LogFilter(
            options.actor,
            None if options.since is None else epoch_micros(_aware(options.since)),
            frozenset(str(named_table(start.catalog, name).id) for name in options.types) or None,
            options.merged,
        )
        manifest = self._repository.manifest
        records = select_commits(manifest, manifest.view, start.commit, wanted)
        return [Commit.of(record) for record in islice(records, options.limit)]

    def _history(
        self, type_name: str, id_: str, branch: str, at: At, limit: int | None
    ) -> list[EntityVersion]:
        from omnigraph.changes.entity_history import entity_versions

        start = self._state(branch, at)
        authorize = partial(self._authorizer.authorize_commit, "read")
        versions = entity_versions(self._repository, start, type_name, id_, authorize)
        return [EntityVersion.of(version) for version in islice(versions, limit)]

    def _blame(self, type_name: str, id_: str, branch: str, at: At) -> list[PropertyOrigin]:
        from omnigraph.changes.entity_history import property_origins

        start = self._state(branch, at)
        authorize = partial(self._authorizer.authorize_commit, "read")
        origins = property_origins(self._repository, start, type_name, id_, authorize)
        return [PropertyOrigin.of(origin) for origin in origins]

    def _state(self, branch: str, at: At) -> Snapshot:
        return self._repository.snapshot(branch, self._authorizer.authorize_at("read", branch, at))


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
