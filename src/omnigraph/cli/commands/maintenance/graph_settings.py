"""`omnigraph settings`: show and change the settings of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.confirmation import announce
from omnigraph.cli.render.output import print_json, print_line
from omnigraph.cli.target import EPILOG, GraphTarget, JsonOption, UriArgument, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.maintain.settings import GraphSettings

settings_commands = typer.Typer(help="Show and change the settings of a graph.", no_args_is_help=True)


@settings_commands.command(epilog=EPILOG)
def show(ctx: typer.Context, uri: UriArgument = None, json: JsonOption = False) -> None:
    """Show the settings of a graph."""
    target = resolve_target(ctx, uri)
    with open_graph(target, "r") as graph:
        _print(target, graph.settings(), json=json)


@settings_commands.command("set", epilog=EPILOG)
def set_(
    ctx: typer.Context,
    retention: Annotated[
        str,
        typer.Option(
            "--retention",
            metavar="R",
            help="Which commits keep their data: forever, default, a duration such as 1h, or fields such as"
            " keep=1000,older_than=1h,thinned=30d.",
        ),
    ],
    uri: UriArgument = None,
    json: JsonOption = False,
) -> None:
    """Change the settings of a graph, for all processes that use it.

    The newest `keep` commits of each branch keep their data, and so do commits that were current within
    `older_than`. Of the commits before them, the last one of each minute of the last hour, of each hour of the last
    day, and of each day within `thinned` keeps its data. A field that is not given has its default.
    """
    from omnigraph.maintain.settings import RetentionSetting

    target = resolve_target(ctx, uri)
    policy = RetentionSetting.of(retention)
    announce(target)
    with open_graph(target, "rw") as graph:
        _print(target, graph.set_settings(retention=policy), json=json)


def _print(target: GraphTarget, settings: GraphSettings, *, json: bool) -> None:
    if json:
        print_json({"uri": target.uri, **settings.to_json()})
    else:
        print_line(f"retention: {settings.retention}")
