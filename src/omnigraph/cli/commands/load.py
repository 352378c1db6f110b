"""`omnigraph load`: records and tables from files into a graph, as one commit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TypeAlias

import typer

from omnigraph.cli.completion import complete_branch
from omnigraph.cli.confirmation import announce, require_consent
from omnigraph.cli.query_arguments import (
    BranchOption,
    EngineOption,
    SparkOption,
    refuse_local_options,
)
from omnigraph.cli.render.load_report import report_lines
from omnigraph.cli.render.output import count, note, say, say_json, warn
from omnigraph.cli.render.progress import shown_progress
from omnigraph.cli.scope import Durability, DurabilityOption, JsonOption, Target, Uri, opened_graph, resolve
from omnigraph.cli.source_files import STDIN, stdin_bytes
from omnigraph.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from omnigraph.api.loads import LoadReceipt

# Of files that only hold rows; those of JSON may as well hold graph records.
TABLE_SUFFIXES = (".csv", ".parquet", ".orc", ".avro", ".arrow", ".feather", ".ipc")

Mode: TypeAlias = Literal["overwrite", "append", "merge"]

# Names of types begin with a capital letter. A file of such a name is still named by ``./``.
_OF_A_TYPE = re.compile(r"((?:node:|edge:)?[A-Z]\w*)=(.+)", re.DOTALL)

_DATA = typer.Option(
    "--data",
    metavar="FILE|TYPE=FILE",
    help="Graph records, or a folder or pattern of such files; - is stdin. Or the files of a type, of CSV, "
    "Parquet, JSON, ORC, Avro or Arrow; may be repeated.",
)
DataOption: TypeAlias = Annotated[list[str], _DATA]
FromOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="BRANCH",
        help="Make the branch from this one if it is not there.",
        autocompletion=complete_branch,
    ),
]


def load(
    ctx: typer.Context,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode", metavar="MODE", help="overwrite the types in the input, append, or merge by id."
        ),
    ],
    data: Annotated[list[str] | None, _DATA] = None,
    uri: Uri = None,
    branch: BranchOption = None,
    from_: FromOption = None,
    rejects: Annotated[
        str | None,
        typer.Option(
            "--rejects", metavar="PATH", help="Leave out bad records, and write them to this file or folder."
        ),
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="Recorded with the commit.")
    ] = None,
    engine: EngineOption = "auto",
    spark: SparkOption = None,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--mapping",
            metavar="FILE",
            help="YAML or JSON that says which columns fill which properties; it may name the files too.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Read and check everything, tell what would be done, commit nothing."),
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Also tell rows, rejects, bytes and the seconds of each stage.")
    ] = False,
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Load records as one commit: all of them, or none.

    Overwriting on storage that is not local needs --yes, or an answer on a terminal.
    """
    target = resolve(ctx, uri)
    refuse_local_options(ctx, target)
    source = _read_source(data or [], mapped=mapping is not None)
    if rejects is not None and not Path(rejects).parent.is_dir():
        raise NotFound(f"no such folder: {Path(rejects).parent}", details={"path": rejects})
    announce(target)
    if mode == "overwrite" and not dry_run:
        require_consent(target, json=json)
    receipt, document = _run(
        target,
        source,
        mode,
        branch,
        from_,
        durability,
        json=json,
        rejects=rejects,
        message=message,
        engine=engine,
        spark=spark,
        dry_run=dry_run,
        mapping=mapping,
    )
    if from_ is None:
        del document["base_branch"]
    del document["actor_id"]
    if rejects is not None:
        document["rejected"] = receipt.rejected
        if receipt.rejected:
            warn(f"{count(receipt.rejected, 'record')} rejected: see {rejects}")
    if dry_run:
        document["dry_run"] = True
    if report:
        document["report"] = receipt.report()
    if json:
        say_json(document)
        return
    say(
        f"{'would load' if dry_run else 'loaded'} {target.uri} on branch {document['branch']} with {mode}:"
        f" {document['total_entities']} entities"
        f" across {len(receipt.nodes)} node types and {len(receipt.edges)} edge types"
    )
    if receipt.branch_created:
        say(f"branch {document['branch']} created from {from_}")
    if report:
        for line in report_lines(document["report"]):
            say(line)


def ingest(
    ctx: typer.Context,
    data: DataOption,
    uri: Uri = None,
    mode: Annotated[
        Mode, typer.Option("--mode", metavar="MODE", help="What becomes of what is there.")
    ] = "merge",
    branch: BranchOption = None,
    from_: FromOption = "main",
    durability: DurabilityOption = "full",
    json: JsonOption = False,
) -> None:
    """Load records that need not be laid out in lines; `load` takes its place."""
    warn("`omnigraph ingest` is deprecated; use `omnigraph load`")
    target = resolve(ctx, uri)
    refuse_local_options(ctx, target)
    source = _read_source(data)
    announce(target)
    if mode == "overwrite":
        require_consent(target, json=json)
    receipt, document = _run(target, source, mode, branch, from_, durability, json=json, permissive=True)
    if json:
        say_json(document)
        return
    say(
        f"ingested {document['total_entities']} entities from {target.uri} into branch {document['branch']} from"
        f" {from_} with {mode} (branch {'created' if receipt.branch_created else 'exists'})"
    )
    for kind in ("node", "edge"):
        for item in document[f"{kind}s"]:
            say(f"{kind} type '{item['name']}': {item['entities_loaded']} entities loaded")
    if document["actor_id"] is not None:
        say(f"actor_id: {document['actor_id']}")


def _run(
    target: Target,
    source: str | BinaryIO | Mapping[str, str] | None,
    mode: Mode,
    branch: str | None,
    base: str | None,
    durability: Durability,
    *,
    json: bool,
    **options: Any,
) -> tuple[LoadReceipt, dict[str, Any]]:
    """Load, and give what was done, also as JSON."""
    from omnigraph.graph.branch_names import MAIN
    from omnigraph.protocol.result_bodies import load_body

    name = MAIN if branch is None else branch
    with (
        opened_graph(target, "rw", durability) as graph,
        shown_progress("loading", silent=json or target.chosen.quiet) as report,
    ):
        receipt = graph.load(source, mode, branch=name, create_from=base, progress=report, **options)
        document = load_body(receipt, target.uri, base, graph.actor)
    if receipt.superseded:
        note(f"{count(receipt.superseded, 'record')} superseded by later ones of the same id")
    return receipt, document


def _read_source(data: Sequence[str], *, mapped: bool = False) -> str | BinaryIO | dict[str, str] | None:
    """What the values of ``--data`` mean: one file of records, or tables by type; a mapping may know better."""
    if not data:
        if mapped:
            return None
        raise typer.BadParameter("say what to load, or give a --mapping that does", param_hint="'--data'")
    tables = [(found[1], found[2]) for item in data if (found := _OF_A_TYPE.fullmatch(item))]
    if not tables and len(data) == 1:
        if not mapped and data[0].lower().removesuffix(".gz").endswith(TABLE_SUFFIXES):
            raise InvalidInput(
                f"{data[0]} does not say what type its rows have", hint=f"pass --data TYPE={data[0]}"
            )
        if data[0] != STDIN:
            return data[0]
        return stdin_bytes()
    if len(tables) < len(data):
        raise typer.BadParameter(
            "several files of records are given as a folder or a pattern; with tables each is TYPE=FILE",
            param_hint="'--data'",
        )
    by_type = dict(tables)
    if len(by_type) < len(tables):
        raise typer.BadParameter("one type is given twice", param_hint="'--data'")
    if STDIN in by_type.values():
        raise typer.BadParameter("stdin (-) can stand for graph records only", param_hint="'--data'")
    return by_type
