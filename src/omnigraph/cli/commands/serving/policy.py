"""`omnigraph policy`: validate, test and explain a policy bundle."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.render.output import escape_unprintable, print_line
from omnigraph.cli.settings.clusters import find_source, resolve_cluster
from omnigraph.cli.settings.graph_address import PROFILE
from omnigraph.cli.target import EPILOG
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.hosting.graph_sources import GraphSource
    from omnigraph.policy.bundle import Binding, PolicyBundle

FileOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--file", metavar="BUNDLE", help="Policy bundle, YAML or JSON; default: the bundle of --cluster."
    ),
]

ClusterScopeOption: TypeAlias = Annotated[
    bool,
    typer.Option("--cluster-scope", help="Use the bundle of the server instead of the bundle of a graph."),
]

policy_commands = typer.Typer(
    help="Validate, test and explain a policy bundle (access control).", no_args_is_help=True
)


@dataclass(frozen=True)
class SelectedBundle:
    """A policy bundle, its name, and the graph it applies to."""

    name: str
    bundle: PolicyBundle
    graph: str | None


@policy_commands.command(epilog=EPILOG)
def validate(
    ctx: typer.Context,
    file: FileOption = None,
    cluster_scope: ClusterScopeOption = False,
) -> None:
    """Validate a policy bundle. Fails with the first error."""
    from omnigraph.policy.gate import Gate

    found = _choose(ctx, file, "cluster" if cluster_scope else "graph")
    Gate(found.bundle, found.graph).prepare()
    print_line(f"policy valid: bundle '{escape_unprintable(found.name)}' [{len(found.bundle.actors)} actors]")


@policy_commands.command("test", epilog=EPILOG)
def run_cases(
    ctx: typer.Context,
    tests: Annotated[str, typer.Option("--tests", metavar="FILE", help="Test cases, YAML or JSON.")],
    file: FileOption = None,
    cluster_scope: ClusterScopeOption = False,
) -> None:
    """Run test cases against a policy bundle. Fails if any decision differs from the expected one."""
    from omnigraph.policy.cases import failed_cases, read_cases
    from omnigraph.policy.gate import Gate
    from omnigraph.sources.mapping.document import read_document

    found = _choose(ctx, file, "cluster" if cluster_scope else None)
    document, _ = read_document(tests, _options())
    cases = document.located((), lambda: read_cases(document.value))
    failed = failed_cases(Gate(found.bundle, found.graph), cases)
    if failed:
        lines = "\n".join(map(escape_unprintable, failed))
        raise InvalidInput(f"policy tests failed:\n{lines}", details={"failed": failed})
    print_line(f"policy tests passed: {len(cases)} cases")


@policy_commands.command(epilog=EPILOG)
def explain(
    ctx: typer.Context,
    actor: Annotated[str, typer.Option("--actor", metavar="ACTOR", help="Actor of the request.")],
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="Action to authorize.")],
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch", metavar="NAME", help="Branch that is read or written, or the source branch."
        ),
    ] = None,
    target_branch: Annotated[
        str | None,
        typer.Option(
            "--target-branch", metavar="NAME", help="Branch that is created, deleted or merged into."
        ),
    ] = None,
    file: FileOption = None,
    cluster_scope: ClusterScopeOption = False,
) -> None:
    """Print the decision of a policy bundle and the rule that matched. --graph ID selects the graph."""
    from omnigraph.lang.suggestions import did_you_mean
    from omnigraph.policy.bundle import ACTIONS
    from omnigraph.policy.gate import Access, Gate

    if action not in ACTIONS:
        raise InvalidInput(
            f"unknown policy action '{action}'{did_you_mean(action, ACTIONS)}",
            hint=f"one of {', '.join(ACTIONS)}",
        )
    found = _choose(ctx, file, "cluster" if cluster_scope else None)
    access = Access(action, branch, target_branch)
    decision = Gate(found.bundle, found.graph).decide(actor, access)
    shown: dict[str, Any] = {
        "decision": "allow" if decision.allowed else "deny",
        "actor": actor,
        "action": action,
        "branch": access.branch,
        "target_branch": access.target_branch,
        "matched_rule": decision.matched_rule_id,
        "message": decision.message,
    }
    for key, value in shown.items():
        print_line(f"{key}: {'null' if value is None else escape_unprintable(value)}")


def _choose(ctx: typer.Context, file: str | None, binding: Binding | None = None) -> SelectedBundle:
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    if binding == "cluster" and chosen.graph is not None:
        raise InvalidInput("--cluster-scope and --graph exclude each other")
    if file is None:
        if chosen.cluster is None and chosen.profile is None and not os.environ.get(PROFILE):
            raise typer.BadParameter("required, unless --cluster CONFIG is given", param_hint="'--file'")
        return _configured(ctx, of_server=binding == "cluster")
    command = ctx.command_path.partition(" ")[2]
    for option in chosen.names():
        if option != "--graph" or command != "policy explain":
            raise InvalidInput(f"`{command}` reads the bundle in --file; {option} does not apply.")
    from omnigraph.api.access import read_policy

    return SelectedBundle(Path(file).stem, read_policy(file, _options(), binding=binding), chosen.graph)


def _configured(ctx: typer.Context, *, of_server: bool) -> SelectedBundle:
    """Return the bundle of a configuration: that of the server or of the selected graph, or the only one."""
    hosting, scope = resolve_cluster(ctx)
    server = None if hosting.policy is None else SelectedBundle("cluster", hosting.policy, None)
    if of_server:
        if server is None:
            raise InvalidInput(f"{scope.origin} has no policy bundle for the server")
        return server
    if scope.graph is not None:
        return _graph_bundle(find_source(hosting, scope))
    graphs = [item for item in hosting.graphs if item.policy is not None]
    if not graphs and server is not None:
        return server
    if len(graphs) == 1 and server is None:
        return _graph_bundle(graphs[0])
    if not graphs:
        raise InvalidInput(f"{scope.origin} has no policy bundle", details={"bundles": []})
    choices = [f"--graph {item.id}" for item in graphs] + ["--cluster-scope"] * (server is not None)
    raise InvalidInput(
        f"{scope.origin} has several policy bundles: choose one with --graph <id>"
        + ("" if server is None else " or --cluster-scope"),
        hint=f"choices: {', '.join(choices)}",
        details={"bundles": [item.id for item in graphs] + ["cluster"] * (server is not None)},
    )


def _graph_bundle(source: GraphSource) -> SelectedBundle:
    if source.policy is None:
        raise InvalidInput(f"graph '{source.id}' has no policy bundle")
    if source.error is not None:
        raise source.error
    return SelectedBundle(source.id, source.policy, source.id)


def _options() -> dict[str, str]:
    from omnigraph.store.storage_options import s3_options

    return s3_options(os.environ)
