"""`omnigraph cluster`: declare graphs, queries and policies in `cluster.yaml`, plan the changes and apply them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from omnigraph.cli.failures import FAILURE
from omnigraph.cli.options import GlobalOptions, refuse_options
from omnigraph.cli.render.cluster_report import print_report
from omnigraph.cli.render.output import print_json
from omnigraph.cli.settings.config import load_config
from omnigraph.cli.target import JsonOption
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.cluster.reports import Report

ConfigOption: TypeAlias = Annotated[
    str, typer.Option("--config", metavar="DIR", help="Directory that contains cluster.yaml.")
]

cluster_commands = typer.Typer(
    help="Declare graphs, queries and policies in cluster.yaml, plan the changes and apply them.",
    no_args_is_help=True,
)


@cluster_commands.command()
def validate(ctx: typer.Context, config: ConfigOption = ".", json: JsonOption = False) -> None:
    """Check cluster.yaml and all files that it names. Storage is not accessed."""
    from omnigraph.cluster.commands import validate as run

    _options(ctx)
    _finish(run(config), json)


@cluster_commands.command("import")
def import_(ctx: typer.Context, config: ConfigOption = ".", json: JsonOption = False) -> None:
    """Create the ledger of a cluster. Graphs that exist already are adopted."""
    from omnigraph.cluster.applying.observe import import_state

    _options(ctx)
    _finish(import_state(config, _storage(), actor=_actor(ctx)), json)


@cluster_commands.command()
def plan(ctx: typer.Context, config: ConfigOption = ".", json: JsonOption = False) -> None:
    """Print the changes that apply would make. Nothing is changed."""
    from omnigraph.cluster.commands import plan as run

    _options(ctx)
    _finish(run(config, _storage()), json)


@cluster_commands.command()
def apply(ctx: typer.Context, config: ConfigOption = ".", json: JsonOption = False) -> None:
    """Apply the configuration: create graphs, migrate schemas, publish queries and policies.

    A command that was interrupted can be repeated. Deleting a graph needs an approval.
    """
    from omnigraph.cluster.applying.apply import apply as run

    _options(ctx)
    _finish(run(config, _storage(), actor=_actor(ctx)), json)


@cluster_commands.command()
def approve(
    ctx: typer.Context,
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="Address of the resource, such as graph.team.")
    ],
    config: ConfigOption = ".",
    json: JsonOption = False,
) -> None:
    """Approve a change that destroys data. A later change of the configuration makes the approval stale."""
    from omnigraph.cluster.applying.approve import approve as run

    _options(ctx)
    actor = _actor(ctx)
    if actor is None:
        raise InvalidInput(
            "an approval needs an actor", hint="pass --as ACTOR, or set operator.actor in your settings"
        )
    _finish(run(config, resource, actor, _storage()), json)


@cluster_commands.command()
def status(
    ctx: typer.Context,
    config: ConfigOption = ".",
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Also open the graphs and show how they differ from the ledger."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print what is applied, and check the stored queries and policies. Nothing is changed."""
    from omnigraph.cluster.commands import status as run

    _options(ctx)
    _finish(run(config, _storage(), observes=refresh), json)


@cluster_commands.command()
def refresh(ctx: typer.Context, config: ConfigOption = ".", json: JsonOption = False) -> None:
    """Correct the ledger to the graphs in storage, so that the next plan shows the differences."""
    from omnigraph.cluster.applying.observe import refresh as run

    _options(ctx)
    _finish(run(config, _storage(), actor=_actor(ctx)), json)


@cluster_commands.command("force-unlock")
def force_unlock(
    ctx: typer.Context,
    lock_id: Annotated[str, typer.Argument(metavar="LOCK_ID", help="Id of the held lock.")],
    config: ConfigOption = ".",
    json: JsonOption = False,
) -> None:
    """Remove the lock that a killed command has left."""
    from omnigraph.cluster.commands import force_unlock as run

    _options(ctx)
    _finish(run(config, lock_id, _storage()), json)


@cluster_commands.command()
def history(ctx: typer.Context, config: ConfigOption = ".", json: JsonOption = False) -> None:
    """List the applied revisions, the newest first."""
    from omnigraph.cluster.commands import history as run

    _options(ctx)
    _finish(run(config, _storage()), json)


@cluster_commands.command()
def rollback(
    ctx: typer.Context,
    revision: Annotated[int, typer.Argument(metavar="REVISION", help="Revision that history lists.")],
    config: ConfigOption = ".",
    json: JsonOption = False,
) -> None:
    """Apply the queries, policies and providers of an earlier revision again. Graphs and schemas are kept."""
    from omnigraph.cluster.applying.rollback import rollback as run

    _options(ctx)
    _finish(run(config, revision, _storage(), actor=_actor(ctx)), json)


def _options(ctx: typer.Context) -> GlobalOptions:
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    refuse_options(ctx.command_path.partition(" ")[2], chosen)
    return chosen


def _actor(ctx: typer.Context) -> str | None:
    return _options(ctx).actor or load_config(ctx).actor


def _storage() -> dict[str, str]:
    from omnigraph.store.storage_options import s3_options

    return s3_options(os.environ)


def _finish(report: Report, json: bool) -> None:
    """Print a report. The exit code is 1 if it has an error."""
    if json:
        print_json(report.to_json())
    else:
        print_report(report)
    if not report.ok:
        raise typer.Exit(FAILURE)
