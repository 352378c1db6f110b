"""`omnigraph load`: load graph records and tables from files, as one commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TypeAlias

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.confirmation import announce, require_consent
from omnigraph.cli.query_arguments import (
    BranchOption,
    EngineOption,
    ExternalBlobsOption,
    IdempotencyKeyOption,
    MessageOption,
    SparkOption,
    refuse_local_options,
)
from omnigraph.cli.render.load_report import report_lines
from omnigraph.cli.render.output import count, print_json, print_line, print_note, print_warning
from omnigraph.cli.render.progress_bar import show_progress
from omnigraph.cli.source_files import STDIN, stdin_bytes
from omnigraph.cli.target import (
    Durability,
    DurabilityOption,
    GraphTarget,
    JsonOption,
    UriArgument,
    open_graph,
    resolve_target,
)
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.results.loads import LoadReceipt
    from omnigraph.sources.input_warnings import InputWarnings

# Suffixes of files that hold rows of one type. JSON files may also hold graph records.
TABLE_SUFFIXES = (".csv", ".parquet", ".orc", ".avro", ".arrow", ".feather", ".ipc")

# Warnings that are printed; `--json` has more of them.
_PRINTED_WARNINGS = 10

Mode: TypeAlias = Literal["overwrite", "append", "merge", "patch", "delete"]
IngestMode: TypeAlias = Literal["overwrite", "append", "merge"]
IndexTime: TypeAlias = Literal["now", "later"]

# TYPE=FILE. Type names start with a capital letter; a file with such a name can be passed as ``./Name=...``.
_TYPED_FILE = re.compile(r"((?:node:|edge:)?[A-Z]\w*)=(.+)", re.DOTALL)

_DATA = typer.Option(
    "--data",
    metavar="FILE|TYPE=FILE",
    help="File of graph records, or a folder or glob pattern of such files; - is stdin. Or TYPE=FILE: rows of one "
    "type, as CSV, Parquet, JSON, ORC, Avro or Arrow. Repeatable.",
)
DataOption: TypeAlias = Annotated[list[str], _DATA]
FromOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="BRANCH",
        help="Create the branch from this one if it does not exist.",
        autocompletion=complete_branch,
    ),
]


@dataclass(frozen=True)
class LoadJob:
    """The arguments of one load. `options` are further keyword arguments of `Graph.load`."""

    target: GraphTarget
    source: str | BinaryIO | Mapping[str, str] | None
    mode: Mode
    branch: str | None
    create_from: str | None
    durability: Durability
    options: Mapping[str, Any]
    external_blobs: Sequence[str] | None = None


def load(
    ctx: typer.Context,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="overwrite (replace the types in the input), append, merge (replace rows by id), patch (by id; "
            "columns that are not given stay), or delete (by key or id).",
        ),
    ],
    data: Annotated[list[str] | None, _DATA] = None,
    uri: UriArgument = None,
    branch: BranchOption = None,
    from_: FromOption = None,
    rejects: Annotated[
        str | None,
        typer.Option(
            "--rejects",
            metavar="PATH",
            help="Leave out records that are invalid or break a constraint, and write them to this file, folder,"
            " s3:// address or table:NAME of Spark.",
        ),
    ] = None,
    max_rejects: Annotated[
        str | None,
        typer.Option(
            "--max-rejects",
            metavar="N|PERCENT",
            help="Commit nothing if more records are rejected: a number, or a percentage of the input like 0.5%.",
        ),
    ] = None,
    message: MessageOption = None,
    idempotency_key: IdempotencyKeyOption = None,
    engine: EngineOption = "auto",
    spark: SparkOption = None,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--mapping",
            metavar="FILE",
            help="YAML or JSON file that maps columns to properties; it may also name the files.",
        ),
    ] = None,
    external_blobs: ExternalBlobsOption = None,
    null: Annotated[
        str,
        typer.Option(
            "--null", metavar="TEXT", help="Unquoted CSV cell that means null; default: the empty cell."
        ),
    ] = "",
    op_column: Annotated[
        str | None,
        typer.Option(
            "--op-column",
            metavar="NAME",
            help="Column or field with the operation of each row: I, U, D, or c, u, d, r. With merge or patch.",
        ),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by", metavar="NAME", help="Column or field with the order of the rows of one key."
        ),
    ] = None,
    require_existing: Annotated[
        bool, typer.Option("--require-existing", help="Refuse a delete of a row that does not exist.")
    ] = False,
    index: Annotated[
        IndexTime,
        typer.Option("--index", help="Index the rows of a large load now, or later by the next optimize."),
    ] = "now",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Read and check the input and print the result; commit nothing."),
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Also print rows, rejects, bytes, and the seconds of each stage.")
    ] = False,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Load records atomically, as one commit.

    `--mode overwrite` on a graph that is not local needs confirmation: --yes, or an answer on a terminal.
    """
    target = resolve_target(ctx, uri)
    from omnigraph.load.reject_target import check_rejects

    refuse_local_options(ctx, target)
    source = _read_source(data or [], mapped=mapping is not None)
    check_rejects(rejects)
    announce(target)
    if mode == "overwrite" and not dry_run:
        require_consent(target, json=json)
    options: dict[str, Any] = {
        "rejects": rejects,
        "max_rejects": max_rejects,
        "message": message,
        "idempotency_key": idempotency_key,
        "engine": engine,
        "spark": spark,
        "dry_run": dry_run,
    }
    options |= {"mapping": mapping, "csv_null": null}
    options |= {"op_column": op_column, "order_by": order_by, "require_existing": require_existing}
    options |= {"index": index}
    job = LoadJob(target, source, mode, branch, from_, durability, options, external_blobs)
    receipt, document = _run(job, silent=json)
    if from_ is None:
        del document["base_branch"]
    del document["actor_id"]
    if rejects is not None:
        document["rejected"] = receipt.rejected
        if receipt.rejected:
            document["rejected_by_rule"] = receipt.rejected_by_rule
            document["rejects"] = receipt.rejects
            print_warning(f"{count(receipt.rejected, 'record')} rejected: see {receipt.rejects}")
    if dry_run:
        document["dry_run"] = True
    if report:
        document["report"] = receipt.report()
    if json:
        print_json(document)
        return
    print_line(
        f"{'would load' if dry_run else 'loaded'} {target.uri} on branch {document['branch']} with {mode}:"
        f" {document['total_entities']} entities"
        f" across {len(receipt.nodes)} node types and {len(receipt.edges)} edge types"
    )
    for name in receipt.skipped:
        counts = {**receipt.affected.get(name, {}), **receipt.skipped[name]}
        print_line(f"  {name}: " + ", ".join(f"{number} {word}" for word, number in counts.items() if number))
    if receipt.unindexed:
        print_line(
            f"{count(sum(receipt.unindexed.values()), 'row')} without an index until the next optimize"
        )
    if receipt.branch_created:
        print_line(f"branch {document['branch']} created from {from_}")
    if report:
        for line in report_lines(document["report"]):
            print_line(line)


def ingest(
    ctx: typer.Context,
    data: DataOption,
    uri: UriArgument = None,
    mode: Annotated[
        IngestMode, typer.Option("--mode", metavar="MODE", help="overwrite, append or merge.")
    ] = "merge",
    branch: BranchOption = None,
    from_: FromOption = "main",
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Load JSON records, which may span several lines. Deprecated: use `load`."""
    print_warning("`omnigraph ingest` is deprecated; use `omnigraph load`")
    target = resolve_target(ctx, uri)
    refuse_local_options(ctx, target)
    source = _read_source(data)
    announce(target)
    if mode == "overwrite":
        require_consent(target, json=json)
    job = LoadJob(target, source, mode, branch, from_, durability, {"permissive": True})
    receipt, document = _run(job, silent=json)
    if json:
        print_json(document)
        return
    print_line(
        f"ingested {document['total_entities']} entities from {target.uri} into branch {document['branch']} from"
        f" {from_} with {mode} (branch {'created' if receipt.branch_created else 'exists'})"
    )
    for kind in ("node", "edge"):
        for item in document[f"{kind}s"]:
            print_line(f"{kind} type '{item['name']}': {item['entities_loaded']} entities loaded")
    if document["actor_id"] is not None:
        print_line(f"actor_id: {document['actor_id']}")


def _run(job: LoadJob, *, silent: bool) -> tuple[LoadReceipt, dict[str, Any]]:
    """Run a load, and return its receipt and the same as JSON. `silent` disables the progress bar."""
    from omnigraph.graph.branch_names import MAIN
    from omnigraph.protocol.result_bodies import load_body

    with (
        open_graph(job.target, "rw", job.durability, external_blobs=job.external_blobs) as graph,
        show_progress("loading", silent=silent or job.target.chosen.quiet) as report,
    ):
        receipt = graph.load(
            job.source,
            job.mode,
            branch=MAIN if job.branch is None else job.branch,
            create_from=job.create_from,
            progress=report,
            **job.options,
        )
        document = load_body(receipt, job.target.uri, job.create_from, graph.actor)
    if receipt.superseded and not receipt.skipped:
        print_note(f"{count(receipt.superseded, 'record')} superseded by a later record with the same id")
    _print_warnings(receipt.warnings)
    return receipt, document


def _print_warnings(warnings: InputWarnings) -> None:
    """Print how many values were stored as null and how many fields were dropped, and the first of them."""
    if not warnings.total:
        return
    print_warning(
        f"{count(warnings.nulled, 'value')} stored as null, {count(warnings.dropped, 'field')} dropped"
    )
    for item in warnings.listed[:_PRINTED_WARNINGS]:
        print_warning(str(item))
    if warnings.total > _PRINTED_WARNINGS:
        print_warning(f"and {warnings.total - _PRINTED_WARNINGS:,} more")


def _read_source(data: Sequence[str], *, mapped: bool = False) -> str | BinaryIO | dict[str, str] | None:
    """Parse the values of ``--data``: one source of graph records, or files by type.

    With a mapping (`mapped`) there may be no value, and a table needs no type.
    """
    if not data:
        if mapped:
            return None
        raise typer.BadParameter("required, unless --mapping names the files", param_hint="'--data'")
    tables = [(found[1], found[2]) for item in data if (found := _TYPED_FILE.fullmatch(item))]
    if not tables and len(data) == 1:
        if not mapped and data[0].lower().removesuffix(".gz").endswith(TABLE_SUFFIXES):
            raise InvalidInput(
                f"the type of the rows of {data[0]} is unknown", hint=f"pass --data TYPE={data[0]}"
            )
        if data[0] != STDIN:
            return data[0]
        return stdin_bytes()
    if len(tables) < len(data):
        raise typer.BadParameter(
            "pass several record files as a folder or a glob pattern, and each table as TYPE=FILE",
            param_hint="'--data'",
        )
    by_type = dict(tables)
    if len(by_type) < len(tables):
        raise typer.BadParameter("a type is given twice", param_hint="'--data'")
    if STDIN in by_type.values():
        raise typer.BadParameter("stdin (-) can be used for graph records only", param_hint="'--data'")
    return by_type
