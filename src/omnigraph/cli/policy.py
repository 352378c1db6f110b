"""`omnigraph policy`: whether a bundle is right, whether it decides as expected, and why it decides so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from omnigraph.cli.output import readable, say
from omnigraph.cli.scope import GlobalOptions
from omnigraph.errors import InvalidInput

if TYPE_CHECKING:
    from omnigraph.policy.bundle import Binding, PolicyBundle

FileOption: TypeAlias = Annotated[
    str, typer.Option("--file", metavar="BUNDLE", help="The bundle: a file of YAML or JSON.")
]

policy_commands = typer.Typer(help="Check, test and question a policy bundle.", no_args_is_help=True)


@policy_commands.callback()
def root(ctx: typer.Context) -> None:
    """Refuse what addresses a graph: these commands look at files alone."""
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    for option in chosen.given():
        if option != "--graph" or ctx.invoked_subcommand != "explain":
            raise InvalidInput(
                f"`policy {ctx.invoked_subcommand}` looks at the bundle in --file; {option} does not apply."
            )


@policy_commands.command()
def validate(
    file: FileOption,
    cluster_scope: Annotated[
        bool, typer.Option("--cluster-scope", help="It is to decide about the server, not about graphs.")
    ] = False,
) -> None:
    """Check a bundle. Fails with the first thing that is wrong."""
    bundle = _read_bundle(file, "cluster" if cluster_scope else "graph")
    say(f"policy valid: bundle '{readable(Path(file).stem)}' [{len(bundle.actors)} actors]")


@policy_commands.command("test")
def run_cases(
    file: FileOption,
    tests: Annotated[str, typer.Option("--tests", metavar="FILE", help="The cases: YAML or JSON.")],
) -> None:
    """Compare what a bundle decides with what is expected. Fails when any case is decided otherwise."""
    from omnigraph.policy.cases import failed_cases, read_cases
    from omnigraph.policy.gate import Gate
    from omnigraph.write.mapping_document import read_document

    bundle = _read_bundle(file)
    document, _ = read_document(tests, _options())
    cases = document.checked((), lambda: read_cases(document.value))
    failed = failed_cases(Gate(bundle), cases)
    if failed:
        lines = "\n".join(map(readable, failed))
        raise InvalidInput(f"policy tests failed:\n{lines}", details={"failed": failed})
    say(f"policy tests passed: {len(cases)} cases")


@policy_commands.command()
def explain(
    ctx: typer.Context,
    file: FileOption,
    actor: Annotated[str, typer.Option("--actor", metavar="ACTOR", help="Who wants to.")],
    action: Annotated[str, typer.Option("--action", metavar="ACTION", help="What they want to do.")],
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="NAME", help="What is read or written, or the source.")
    ] = None,
    target_branch: Annotated[
        str | None,
        typer.Option("--target-branch", metavar="NAME", help="What is made, deleted or merged into."),
    ] = None,
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
    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    decision = Gate(_read_bundle(file), chosen.graph).decide(actor, Access(action, branch, target_branch))
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


def _read_bundle(file: str, binding: Binding | None = None) -> PolicyBundle:
    from omnigraph.api.access import read_policy

    return read_policy(file, _options(), binding=binding)


def _options() -> dict[str, str]:
    from omnigraph.store.options import s3_options

    return s3_options(os.environ)
