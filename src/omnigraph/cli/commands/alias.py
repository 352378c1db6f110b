"""`omnigraph alias`: a stored query under a name of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from json import loads as parse_json
from typing import Annotated, Any

import typer

from omnigraph.cli.commands.query import print_result
from omnigraph.cli.query_arguments import ParamsFileOption, ParamsOption, read_request
from omnigraph.cli.scope import JsonOption, opened_graph, served_target
from omnigraph.cli.settings.addresses import Scope
from omnigraph.cli.settings.config import Alias, TextFormat, config_of, settings_name
from omnigraph.cli.stored_query import read_stored
from omnigraph.errors import InvalidInput


def alias(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The alias.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGS]...", help="Values of its parameters, in the order of its `args`."),
    ] = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    format_: Annotated[
        TextFormat | None,
        typer.Option(
            "--format", metavar="FORMAT", help="table, json, jsonl, csv or kv; default the alias's."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a stored query that your settings have a name for. Mutations are refused.

    A value is read as JSON where it is, and as a text otherwise. Values behind the name outrank those of the
    settings, and those of --params outrank both.
    """
    config = config_of(ctx)
    found = _find(name, config.aliases)
    request = read_request("query", found.query, None, None, params, params_file, stored=True)
    given = {} if request.params is None else request.params
    if not isinstance(given, dict):
        raise InvalidInput("the parameters are not an object of names and values")
    request = replace(request, params={**found.params, **_positional(found, values or ()), **given})
    target = served_target(ctx, "alias", Scope("server", found.server, f"alias '{name}'", found.graph))
    with opened_graph(target, "r") as graph:
        result = read_stored(graph, request, "main", None)
    print_result(result, "json" if json else format_ or found.format or config.output, config)


def _find(name: str, aliases: Mapping[str, Alias]) -> Alias:
    if name in aliases:
        return aliases[name]
    from omnigraph.lang.suggestions import did_you_mean

    raise InvalidInput(
        f"no alias is called '{name}'{did_you_mean(name, list(aliases))}",
        hint=f"name it under aliases: in {settings_name()}",
        details={"alias": name},
    )


def _positional(alias: Alias, values: Sequence[str]) -> dict[str, Any]:
    """Values by the names that the settings give them; fewer than there are names will do."""
    if len(values) > len(alias.args):
        taken = ", ".join(alias.args) or "none"
        raise InvalidInput(
            f"alias '{alias.name}' takes {len(alias.args)} values ({taken}), not {len(values)}"
        )
    return {name: _value(text) for name, text in zip(alias.args, values, strict=False)}


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        # Whatever is no JSON is a text: nobody should have to quote a word twice.
        return text
