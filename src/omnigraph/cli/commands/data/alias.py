"""`omnigraph alias`: run a stored query by its alias in the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from json import loads as parse_json
from typing import Annotated, Any

import typer

from omnigraph.cli.commands.data.query import print_result
from omnigraph.cli.query_arguments import ParamsFileOption, ParamsOption, read_request
from omnigraph.cli.render.output import count
from omnigraph.cli.settings.config import Alias, TextFormat, load_config, settings_file_name
from omnigraph.cli.settings.graph_address import GraphAddress
from omnigraph.cli.stored_query import read_stored
from omnigraph.cli.target import JsonOption, open_graph, resolve_served
from omnigraph.errors import InvalidInput


def alias(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the alias.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGS]...", help="Parameter values, in the order of the `args` of the alias."
        ),
    ] = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    format_: Annotated[
        TextFormat | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="table, json, jsonl, csv or kv; default: the format of the alias.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a stored query by its alias in your settings. Stored mutations are refused.

    A value that is valid JSON is parsed as JSON; any other value is a string. Positional values override the
    parameters in the settings, and --params overrides both.
    """
    config = load_config(ctx)
    found = _find(name, config.aliases)
    request = read_request("query", found.query, None, None, params, params_file, stored=True)
    overrides = {} if request.params is None else request.params
    if not isinstance(overrides, dict):
        raise InvalidInput("parameters must be an object")
    request = replace(request, params={**found.params, **_positional(found, values or ()), **overrides})
    target = resolve_served(
        ctx, "alias", GraphAddress("server", found.server, f"alias '{name}'", found.graph)
    )
    with open_graph(target, "r") as graph:
        result = read_stored(graph, request, "main", None)
    print_result(result, "json" if json else format_ or found.format or config.output, config)


def _find(name: str, aliases: Mapping[str, Alias]) -> Alias:
    if name in aliases:
        return aliases[name]
    from omnigraph.lang.suggestions import did_you_mean

    raise InvalidInput(
        f"no alias named '{name}'{did_you_mean(name, list(aliases))}",
        hint=f"add it under aliases: in {settings_file_name()}",
        details={"alias": name},
    )


def _positional(alias: Alias, values: Sequence[str]) -> dict[str, Any]:
    """Return positional values by parameter name. Fewer values than `args` are allowed."""
    if len(values) > len(alias.args):
        accepted = (
            f"at most {count(len(alias.args), 'value')} ({', '.join(alias.args)})"
            if alias.args
            else "no values"
        )
        raise InvalidInput(f"alias '{alias.name}' takes {accepted}, got {len(values)}")
    return {name: _value(text) for name, text in zip(alias.args, values, strict=False)}


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        # A word that is not JSON is a string, so that it needs no quotes inside the quotes of the shell.
        return text
