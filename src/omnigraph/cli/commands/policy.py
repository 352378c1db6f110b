"""`omnigraph policy`: whether a bundle is right, whether it decides as expected, and why it decides so."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.render.output import readable, say
from omnigraph.cli.scope import SHARED
from omnigraph.cli.settings.addresses import PROFILE
from omnigraph.cli.settings.clusters import find_source, resolve_cluster
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.api.hosting import GraphSource
    from omnigraph.policy.bundle import Binding, PolicyBundle

FileOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--file", metavar="BUNDLE", help="The bundle, a file of YAML or JSON; else that of --cluster."
    ),
]

ClusterScopeOption: TypeAlias = Annotated[
    bool, typer.Option("--cluster-scope", help="The bundle that decides about the server, not about a graph.")
]

policy_commands = typer.Typer(help="Check, test and question a policy bundle.", no_args_is_help=True)


@dataclass(frozen=True)
class Chosen:
    """The bundle that a command is about, what it is called, and the graph that it decides about."""

    name: str
    bundle: PolicyBundle
    graph: str | None


@policy_commands.command(epilog=SHARED)
def validate(
    ctx: typer.Context,
    file: FileOption = None,
    cluster_scope: ClusterScopeOption = False,
) -> None:
    """Check a bundle. Fails with the first thing that is wrong."""
    from omnigraph.policy.gate import Gate

    found = _choose(ctx, file, "cluster" if cluster_scope else "graph")
    Gate(found.bundle, found.graph).prepare()
    say(f"policy valid: bundle '{readable(found.name)}' [{len(found.bundle.actors)} actors]")


@policy_commands.command("test", epilog=SHARED)
def run_cases(
    ctx: typer.Context,
    tests: Annotated[str, typer.Option("--tests", metavar="FILE", help="The cases: YAML or JSON.")],
    file: FileOption = None,
    cluster_scope: ClusterScopeOption = False,
) -> None:
    """Compare what a bundle decides with what is expected. Fails when any case is decided otherwise."""
    from omnigraph.policy.cases import failed_cases, read_cases
    from omnigraph.policy.gate import Gate
    from omnigraph.sources.mapping.document import read_document

    found = _choose(ctx, file, "cluster" if cluster_scope else None)
    document, _ = read_document(tests, _options())
    cases = document.located((), lambda: read_cases(document.value))
    failed = failed_cases(Gate(found.bundle, found.graph), cases)
    if failed:
        lines = "\n".join(map(readable, failed))
        raise InvalidInput(f"policy tests failed:\n{lines}", details={"failed": failed})
    say(f"policy tests passed: {len(cases)} cases")


@policy_commands.command(epilog=SHARED)
def explain(
    ctx: typer.Context,
    actor: Annotated[str, typer.Option("--actor", metavar="ACTOR", help="Who wants to.")],
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="What they want to do.")],
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="What is read or written, or the source.")
    ] = None,
    target_branch: Annotated[
        str | None,
        typer.Option("--target-branch", metavar="NAME", help="What is made, deleted or merged into."),
    ] = None,
    file: FileOption = None,
    cluster_scope: ClusterScopeOption = False,
) -> None:
    """Tell what a bundle decides, and by which rule. With --graph ID about that graph."""
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
        say(f"{key}: {'null' if value is None else readable(value)}")


def _choose(ctx: typer.Context, file: str | None, binding: Binding | None = None) -> Chosen:
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    if binding == "cluster" and chosen.graph is not None:
        raise InvalidInput("--cluster-scope is about the server and --graph about a graph; pass one of them")
    if file is None:
        if chosen.cluster is None and chosen.profile is None and not os.environ.get(PROFILE):
            raise typer.BadParameter("pass it, or --cluster CONFIG", param_hint="'--file'")
        return _configured(ctx, of_server=binding == "cluster")
    command = ctx.command_path.partition(" ")[2]
    for option in chosen.given():
        if option != "--graph" or command != "policy explain":
            raise InvalidInput(f"`{command}` looks at the bundle in --file; {option} does not apply.")
    from omnigraph.api.access import read_policy

    return Chosen(Path(file).stem, read_policy(file, _options(), binding=binding), chosen.graph)


def _configured(ctx: typer.Context, *, of_server: bool) -> Chosen:
    """The bundle of a configuration: that of the server or of the graph which was chosen, or the only one."""
    hosting, scope = resolve_cluster(ctx)
    server = None if hosting.policy is None else Chosen("cluster", hosting.policy, None)
    if of_server:
        if server is None:
            raise InvalidInput(f"{scope.origin} has no policy bundle of the server")
        return server
    if scope.graph is not None:
        return _of_graph(find_source(hosting, scope))
    graphs = [item for item in hosting.graphs if item.policy is not None]
    if not graphs and server is not None:
        return server
    if len(graphs) == 1 and server is None:
        return _of_graph(graphs[0])
    if not graphs:
        raise InvalidInput(f"{scope.origin} has no policy bundle", details={"bundles": []})
    ways = [f"--graph {item.id}" for item in graphs] + ["--cluster-scope"] * (server is not None)
    raise InvalidInput(
        f"{scope.origin} has several policy bundles; say which with --graph <id>"
        + ("" if server is None else " or --cluster-scope"),
        hint=f"it has: {', '.join(ways)}",
        details={"bundles": [item.id for item in graphs] + ["cluster"] * (server is not None)},
    )


def _of_graph(source: GraphSource) -> Chosen:
    if source.policy is None:
        raise InvalidInput(f"graph '{source.id}' has no policy bundle")
    if source.trouble is not None:
        raise source.trouble
    return Chosen(source.id, source.policy, source.id)


def _options() -> dict[str, str]:
    from omnigraph.store.storage_options import s3_options

    return s3_options(os.environ)
