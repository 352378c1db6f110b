"""The methods of `Graph` that change rows of one type, given as dicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.api.results.loads import LoadReceipt, check_load
from omnigraph.graph.argument_checks import require_text
from omnigraph.load.load_request import LoadRequest
from omnigraph.rules.load_mode import LoadMode

if TYPE_CHECKING:
    from omnigraph.api.interface.row_arguments import Ids, Rows


class TypeWrites(ABC):
    """Rows of one type, written as one commit. They are checked like the rows of a load."""

    def insert(
        self,
        type_name: str,
        rows: Rows,
        *,
        branch: str = "main",
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
    ) -> LoadReceipt:
        """Insert one row or several. Raises `ConstraintViolation` if a row with the same key exists.

        A row is a dict of properties; of an edge also ``from`` and ``to``.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-insert", schema="node City { name: String @key  mayor: String? }")
        >>> g.insert("City", {"name": "Bern"}).affected
        {'City': {'inserted': 1, 'updated': 0, 'deleted': 0}}
        """
        given = [rows] if isinstance(rows, Mapping) else list(rows)
        return self._load_rows(type_name, given, "append", branch, message, if_commit, idempotency_key, actor)

    def upsert(
        self,
        type_name: str,
        rows: Rows,
        *,
        branch: str = "main",
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
    ) -> LoadReceipt:
        """Update one row or several by key, and insert those that do not exist.

        Properties that a row does not name keep their values. A row may have the ``id`` instead of the key.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-upsert", schema="node City { name: String @key  mayor: String? }")
        >>> g.upsert("City", [{"name": "Bern", "mayor": "Ana"}, {"name": "Chur"}]).affected
        {'City': {'inserted': 2, 'updated': 0, 'deleted': 0}}
        """
        given = [rows] if isinstance(rows, Mapping) else list(rows)
        return self._load_rows(type_name, given, "patch", branch, message, if_commit, idempotency_key, actor)

    def delete(
        self,
        type_name: str,
        ids: Ids,
        *,
        branch: str = "main",
        message: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        actor: str | None = None,
    ) -> LoadReceipt:
        """Delete one row or several by id, and the edges of deleted nodes. Ids that do not exist have no effect.

        The id of a node with a key is derived from the key: for one text or integer property it is its value.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-delete", schema="node City { name: String @key  mayor: String? }")
        >>> _ = g.insert("City", [{"name": "Bern"}, {"name": "Chur"}])
        >>> g.delete("City", "Bern").affected
        {'City': {'inserted': 0, 'updated': 0, 'deleted': 1}}
        """
        from omnigraph.catalog.keys import id_text

        given = list(ids) if isinstance(ids, Sequence) and not isinstance(ids, str) else [ids]
        rows = [{"id": id_text(item)} for item in given]
        return self._load_rows(type_name, rows, "delete", branch, message, if_commit, idempotency_key, actor)

    def _load_rows(
        self,
        type_name: str,
        rows: Sequence[Mapping[str, Any]],
        mode: LoadMode,
        branch: str,
        message: str | None,
        if_commit: str | None,
        idempotency_key: str | None,
        actor: str | None,
    ) -> LoadReceipt:
        request = LoadRequest(
            source={type_name: rows},
            mode=mode,
            branch=require_text("branch", branch),
            message=message,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            actor=actor,
        )
        check_load(request)
        return self._load(request)

    @abstractmethod
    def _load(self, request: LoadRequest) -> LoadReceipt: ...
