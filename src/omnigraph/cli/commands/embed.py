"""`omnigraph embed`: the vectors of records, filled in before they are loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.render.output import count, readable, say, say_json
from omnigraph.cli.scope import JsonOption

if TYPE_CHECKING:
    from omnigraph.api.embedding import EmbedJob, Mode


def embed(
    seed: Annotated[
        Path | None, typer.Option("--seed", metavar="YAML", help="A manifest: records, output and spec.")
    ] = None,
    input_: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="The records.")] = None,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Where they go.")] = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="FILE", help="Which types have a vector of what.")
    ] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Take vectors out.")] = False,
    reembed_all: Annotated[
        bool, typer.Option("--reembed-all", help="Make the vectors anew that are there.")
    ] = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only records of this type; repeatable."),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="[TYPE:]FIELD=VALUE", help="Only these, and anew; repeatable."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Fill in the vectors that records of a file lack, from the texts of their properties.

    The provider is the one that the environment names; OMNIGRAPH_EMBEDDINGS_MOCK=1 makes vectors without a model.
    No graph is touched: load the output.
    """
    from omnigraph.api.embedding import EmbedJob, Selector, embed_file, read_manifest, read_spec
    from omnigraph.search.embedding_providers import EmbeddingSettings

    if clean and reembed_all:
        raise typer.BadParameter("vectors are taken out or made anew, not both", param_hint="'--clean'")
    if seed is not None:
        if input_ is not None or spec is not None:
            raise typer.BadParameter("the manifest names records and spec", param_hint="'--seed'")
        source, target, read = read_manifest(seed)
        target = target if output is None else output
    elif input_ is None or output is None or spec is None:
        raise typer.BadParameter("pass --seed, or --input, --output and --spec", param_hint="'--seed'")
    else:
        source, target, read = input_, output, read_spec(spec)
    mode: Mode = "clean" if clean else "reembed_all" if reembed_all else "fill_missing"
    if select and mode == "fill_missing":
        mode = "reembed_selected"
    selectors = [Selector.parse(text) for text in select or ()]
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
        say_json({**paths, **counts, "mode": mode, "dimension": read.dimension, "model": settings.model})
        return
    changed = done.cleaned_records if clean else done.embedded_records
    what = "cleaned" if clean else "embedded"
    how = _shown(job, settings.model)
    say(f"{what} {changed} of {count(done.records, 'record')} to {readable(str(target))} ({how})")


def _shown(job: EmbedJob, model: str) -> str:
    parts = [job.mode, f"dimension {job.spec.dimension}", model]
    return ", ".join(part for part in parts if part)
