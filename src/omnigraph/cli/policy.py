"""`omnigraph policy`: whether a bundle is right, whether it decides as expected, and why it decides so."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.addresses import PROFILE
from omnigraph.cli.clusters import find_source, resolve_cluster
from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.output import readable, say
from omnigraph.cli.scope import SHARED
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.policy.bundle import Binding, PolicyBundle

FileOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--file", metavar="BUNDLE", help="The bundle, a file of YAML or JSON; else that of --cluster."
    ),
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
    cluster_scope: Annotated[
        bool, typer.Option("--cluster-scope", help="It is to decide about the server, not about graphs.")
    ] = False,
) -> None:
    """Check a bundle. Fails with the first thing that is wrong."""
    found = _choose(ctx, file, "cluster" if cluster_scope else "graph")
    say(f"policy valid: bundle '{readable(found.name)}' [{len(found.bundle.actors)} actors]")


@policy_commands.command("test", epilog=SHARED)
def run_cases(
    ctx: typer.Context,
    tests: Annotated[str, typer.Option("--tests", metavar="FILE", help="The cases: YAML or JSON.")],
    file: FileOption = None,
) -> None:
    """Compare what a bundle decides with what is expected. Fails when any case is decided otherwise."""
    from omnigraph.policy.cases import failed_cases, read_cases
    from omnigraph.policy.gate import Gate
    from omnigraph.write.mapping_document import read_document

    found = _choose(ctx, file)
    document, _ = read_document(tests, _options())
    cases = document.checked((), lambda: read_cases(document.value))
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
) -> None:
    """Tell what a bundle decides, and by which rule. With --graph ID about that graph."""
    from omnigraph.lang.source import did_you_mean
    from omnigraph.policy.bundle import ACTIONS
    from omnigraph.policy.gate import Access, Gate

    if action not in ACTIONS:
        raise InvalidInput(
            f"unknown policy action '{action}'{did_you_mean(action, ACTIONS)}",
            hint=f"one of {', '.join(ACTIONS)}",
        )
    found = _choose(ctx, file)
    decision = Gate(found.bundle, found.graph).decide(actor, Access(action, branch, target_branch))
    shown: dict[str, Any] = {
        "decision": "allow" if decision.allowed else "deny",
        "actor": actor,
        "action": action,
        "branch": branch,
        "target_branch": target_branch,
        "matched_rule": decision.matched_rule_id,
        "message": decision.message,
    }
    for key, value in shown.items():
        say(f"{key}: {'null' if value is None else readable(value)}")


def _choose(ctx: typer.Context, file: str | None, binding: Binding | None = None) -> Chosen:
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    if file is None:
        if chosen.cluster is None and chosen.profile is None and not os.environ.get(PROFILE):
            raise typer.BadParameter("pass it, or --cluster CONFIG", param_hint="'--file'")
        return _configured(ctx)
    command = ctx.command_path.partition(" ")[2]
    for option in chosen.given():
        if option != "--graph" or command != "policy explain":
            raise InvalidInput(f"`{command}` looks at the bundle in --file; {option} does not apply.")
    from omnigraph.api.access import read_policy

    return Chosen(Path(file).stem, read_policy(file, _options(), binding=binding), chosen.graph)


def _configured(ctx: typer.Context) -> Chosen:
    """The bundle of a configuration: that of the graph which was chosen, or the only one."""
    hosting, scope = resolve_cluster(ctx)
    if scope.graph is not None:
        source = find_source(hosting, scope)
        if source.policy is None:
            raise InvalidInput(f"graph '{source.id}' has no policy bundle")
        return Chosen(source.id, source.policy, source.id)
    found = [Chosen(item.id, item.policy, item.id) for item in hosting.graphs if item.policy is not None]
    if hosting.policy is not None:
        found.append(Chosen("cluster", hosting.policy, None))
    if len(found) == 1:
        return found[0]
    names = ", ".join(item.name for item in found)
    raise InvalidInput(
        f"{scope.origin} has several policy bundles; say which with --graph <id>"
        if found
        else f"{scope.origin} has no policy bundle",
        hint=f"it has: {names}" if found else None,
        details={"bundles": [item.name for item in found]},
    )


def _options() -> dict[str, str]:
    from omnigraph.store.options import s3_options

    return s3_options(os.environ)
