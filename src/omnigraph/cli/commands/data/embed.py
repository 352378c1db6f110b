"""`omnigraph embed`: compute the embeddings of records in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.commands.maintenance import embeddings
from omnigraph.cli.options import GlobalOptions, refuse_options
from omnigraph.cli.render.output import count, escape_unprintable, print_json, print_line
from omnigraph.cli.target import EPILOG, JsonOption

if TYPE_CHECKING:
    from omnigraph.api.embedding.embed_records import EmbedJob, EmbedMode


embed_commands = typer.Typer()
embed_commands.command("status", epilog=EPILOG)(embeddings.status)
embed_commands.command("refresh", epilog=EPILOG)(embeddings.refresh)


@embed_commands.callback(invoke_without_command=True)
def embed(
    ctx: typer.Context,
    seed: Annotated[
        Path | None,
        typer.Option("--seed", metavar="YAML", help="Manifest that names the input, output and spec."),
    ] = None,
    input_: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="Records to read.")] = None,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="File to write.")] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec",
            metavar="FILE",
            help="JSON that names the vector field and the source fields of each type.",
        ),
    ] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Remove the vectors.")] = False,
    reembed_all: Annotated[bool, typer.Option("--reembed-all", help="Replace existing vectors too.")] = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only records of this type. Repeatable."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="[TYPE:]FIELD=VALUE",
            help="Only these records; replace their vectors. Repeatable.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compute the missing embeddings of the records in a file, from the texts of their properties.

    Environment variables select the provider; OMNIGRAPH_EMBEDDINGS_MOCK=1 computes deterministic vectors without a
    model. Without a subcommand no graph is used: load the output. The subcommands work on the embeddings that a
    graph stores.
    """
    if ctx.invoked_subcommand is not None:
        return
    refuse_options("embed", ctx.find_object(GlobalOptions) or GlobalOptions())
    from omnigraph.api.embedding.embed_records import EmbedJob, embed_file
    from omnigraph.api.embedding.embed_spec import RecordSelector, read_manifest, read_spec
    from omnigraph.search.embeddings.provider_settings import EmbeddingSettings

    if clean and reembed_all:
        raise typer.BadParameter("cannot be combined with --reembed-all", param_hint="'--clean'")
    if seed is not None:
        if input_ is not None or spec is not None:
            raise typer.BadParameter("cannot be combined with --input or --spec", param_hint="'--seed'")
        source, target, read = read_manifest(seed)
        target = target if output is None else output
    elif input_ is None or output is None or spec is None:
        raise typer.BadParameter("pass --seed, or --input, --output and --spec", param_hint="'--seed'")
    else:
        source, target, read = input_, output, read_spec(spec)
    mode: EmbedMode = "clean" if clean else "reembed_all" if reembed_all else "fill_missing"
    if select and mode == "fill_missing":
        mode = "reembed_selected"
    selectors = [RecordSelector.parse(text) for text in select or ()]
    job = EmbedJob(source, target, read, mode, frozenset(types or ()), selectors)
    settings = EmbeddingSettings("mock") if clean else EmbeddingSettings.of(os.environ)
    done = embed_file(job, settings.open(documents=True))
    if json:
        counts = {
            "records": done.records,
            "selected_records": done.selected_records,
            "embedded_records": done.embedded_records,
            "cleaned_records": done.cleaned_records,
        }
        paths = {"input": str(source), "output": str(target)}
        print_json({**paths, **counts, "mode": mode, "dimension": read.dimension, "model": settings.model})
        return
    changed = done.cleaned_records if clean else done.embedded_records
    verb = "cleaned" if clean else "embedded"
    mode_text = _describe(job, settings.model)
    print_line(
        f"{verb} {changed} of {count(done.records, 'record')} to {escape_unprintable(str(target))} ({mode_text})"
    )


def _describe(job: EmbedJob, model: str) -> str:
    parts = [job.mode, f"dimension {job.spec.dimension}", model]
    return ", ".join(part for part in parts if part)
