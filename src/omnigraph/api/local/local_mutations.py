"""Run a mutation query in a local graph."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from omnigraph.api.local.checked_queries import SELECTION
from omnigraph.api.results.commits import Commit
from omnigraph.api.results.receipts import Receipt, by_type_name
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.graph.branch_names import normalize_branch_name
from omnigraph.lang import ir
from omnigraph.lang.gq.query_parameters import bind_params

if TYPE_CHECKING:
    from omnigraph.api.interface.graph_writes import MutationOptions
    from omnigraph.api.local.checked_queries import CheckedQueries
    from omnigraph.catalog.catalog import Catalog
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.transaction import Transaction
    from omnigraph.graph.write_plan import Prepared
    from omnigraph.mutate.mutate import MutationResult
    from omnigraph.read.reader import Reader
    from omnigraph.rules.external_blobs import ExternalBlobPolicy


def run_mutation(
    repository: Repository,
    reader: Reader,
    queries: CheckedQueries,
    text: str,
    options: MutationOptions,
    external_blobs: ExternalBlobPolicy,
) -> Receipt:
    """Run a mutation query as one commit and return its receipt. `options.actor` is authorized."""
    from omnigraph.engine.parameters import Bindings
    from omnigraph.graph.write_request import WriteRequest
    from omnigraph.mutate.mutate import prepare_mutation
    from omnigraph.rules.blob_ingress import BlobIngress

    ingress = BlobIngress(external_blobs, repository.objects.options)
    now = time.time_ns() // 1_000_000

    def prepare(transaction: Transaction) -> Prepared[MutationResult]:
        query = queries.get(text, options.name, transaction.base.catalog)
        if not isinstance(query, ir.MutationQuery):
            raise InvalidInput(
                f"query '{query.name}' is a read",
                details={SELECTION: "read", "query": query.name},
                hint="run it with `query`",
            )
        bindings = Bindings(bind_params(query.params, options.params), now)
        return prepare_mutation(transaction, query, bindings, reader.ids, ingress, reader.vectors)

    _compute_early(repository, reader, queries, text, options)
    request = WriteRequest(
        "mutate",
        actor=options.actor,
        message=options.message,
        expected_head=options.if_commit,
        idempotency_key=options.idempotency_key,
        request=f"{text}\0{options.name}\0{_params_text(options)}",
    )
    receipt, result = repository.write(options.branch, request, prepare)
    # A replayed request is not compiled, so only the name in the call is known.
    query_name = options.name if result is None else result.query_name
    if receipt is None:
        return Receipt(None, query_name=query_name)
    commit = Commit.of(receipt.commit)
    if result is None or receipt.replayed:
        return Receipt(commit, replayed=True, query_name=query_name)
    return Receipt(commit, by_type_name(result.affected), result.nodes, result.edges, query_name=query_name)


def _compute_early(
    repository: Repository, reader: Reader, queries: CheckedQueries, text: str, options: MutationOptions
) -> None:
    """Compute the embeddings of a mutation before it waits for its branch, so that no other write waits for them.

    The vectors are then in the cache. The schema is that of the last known head, which costs no request; a query
    that is not valid for it is computed and reported when it is prepared.
    """
    from omnigraph.engine.parameters import Bindings
    from omnigraph.mutate.statement_embeddings import StatementEmbeddings

    catalog = _known_catalog(repository, options.branch)
    if catalog is None or not any(node.embedded for node in catalog.schema.nodes):
        return
    try:
        query = queries.get(text, options.name, catalog)
        if not isinstance(query, ir.MutationQuery):
            return
        bindings = Bindings(bind_params(query.params, options.params), 0)
    except (InvalidInput, NotFound):
        # Reported with the current schema by the preparation.
        return
    StatementEmbeddings(catalog, bindings, reader.vectors).compute(query)


def _known_catalog(repository: Repository, branch: str) -> Catalog | None:
    """Return the schema of the last known head of a branch, without a request."""
    try:
        return repository.head_snapshot(repository.manifest.view, normalize_branch_name(branch)).catalog
    except OmnigraphError:
        # An unknown branch is reported by the write.
        return None


def _params_text(options: MutationOptions) -> str:
    """Return the parameters as text, if the request has an idempotency key that it is compared with."""
    if options.idempotency_key is None:
        return ""
    from omnigraph.graph.idempotency import canonical_text

    # A parameter that is left out is null.
    given = {name: value for name, value in (options.params or {}).items() if value is not None}
    return canonical_text(given)
