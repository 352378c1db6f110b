"""The results of the cluster commands as text: diagnostics, plans, statuses and history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from omnigraph.cli.render.output import escape_unprintable, print_line, print_status, styled
from omnigraph.cluster.reports import (
    ApplyReport,
    ApproveReport,
    HistoryReport,
    PlanReport,
    StatusReport,
    UnlockReport,
    ValidateReport,
)

if TYPE_CHECKING:
    from omnigraph.cluster.planning.changes import Change, Migration, Plan
    from omnigraph.cluster.reports import Report, StateObservations

_SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "create": ("+", "green"),
    "update": ("~", "yellow"),
    "delete": ("-", "red"),
}
_STATUS_STYLES: Final[Mapping[str, str]] = {
    "applied": "green",
    "drifted": "yellow",
    "pending": "yellow",
    "blocked": "red",
    "error": "bold red",
}
_SHORT_DIGEST: Final = 12


def print_report(report: Report) -> None:
    """Print a report on stdout, its diagnostics last."""
    for line in _lines(report):
        print_line(line)
    for item in report.diagnostics:
        word = "ERROR" if item.severity == "error" else "WARN"
        print_status(word, f"{item.code} {escape_unprintable(item.path)}: {escape_unprintable(item.message)}")


def _lines(report: Report) -> Iterator[str]:
    match report:
        case ValidateReport():
            found = report.configuration
            if found is not None:
                yield (
                    f"cluster config valid: {len(found.digests)} resource(s), "
                    f"{len(found.dependencies)} dependency edge(s)"
                )
        case PlanReport():
            if report.configuration is not None and report.observations.storage is not None:
                gates = report.plan.approvals_required
                yield f"cluster plan: {len(report.plan.changes)} change(s), {len(gates)} approval gate(s)"
                yield from _plan_lines(report.plan)
        case ApplyReport():
            yield from _apply_lines(report)
        case ApproveReport():
            if report.approval_id is not None:
                yield (
                    f"approved {report.operation} of {report.resource} by "
                    f"{escape_unprintable(report.approved_by or '')}: approval {report.approval_id}"
                )
        case StatusReport():
            yield from _status_lines(report)
        case UnlockReport():
            if report.lock_removed:
                yield "lock removed"
        case HistoryReport():
            yield from _history_lines(report)


def _plan_lines(plan: Plan) -> Iterator[str]:
    if not plan.changes:
        yield "  no changes: the cluster matches its configuration"
        return
    for change in plan.changes:
        yield from _change_lines(change, plan.blast_radius.get(change.resource, ()))
    for gate in plan.approvals_required:
        state = styled("approved", "green") if gate.satisfied else styled("approval needed", "bold red")
        hint = "" if gate.satisfied else f": omnigraph cluster approve {gate.resource} --as ACTOR"
        yield f"  ! {gate.resource} ({gate.reason}) {state}{hint}"
    counts = {name: sum(item.operation == name for item in plan.changes) for name in _SIGNS}
    blocked = sum(item.disposition in ("blocked", "deferred") for item in plan.changes)
    total = ", ".join(f"{number} to {name}" for name, number in counts.items())
    yield f"Plan: {total}" + (styled(f", {blocked} blocked or deferred", "red") if blocked else "")


def _change_lines(change: Change, affected: tuple[str, ...]) -> Iterator[str]:
    sign, style = _SIGNS[change.operation]
    notes = [] if change.disposition in (None, "applied") else [str(change.disposition)]
    if change.reason is not None:
        notes.append(change.reason)
    if change.metadata_change is not None:
        notes.append(change.metadata_change.replace("_", " "))
    shown = f" ({', '.join(notes)})" if notes else ""
    digests = [digest[:_SHORT_DIGEST] for digest in (change.before_digest, change.after_digest) if digest]
    arrow = "" if change.operation != "update" else f"  {' -> '.join(dict.fromkeys(digests))}"
    yield f"  {styled(f'{sign} {change.operation} {escape_unprintable(change.resource)}', style)}{arrow}{shown}"
    if change.migration is not None:
        yield from _migration_lines(change.migration)
    # What depends on a new resource is new, too.
    if affected and change.operation != "create":
        yield f"      affects {', '.join(map(escape_unprintable, affected))}"


def _migration_lines(migration: Migration) -> Iterator[str]:
    for line in migration.lines:
        sign, _, _ = line.partition(" ")
        style = {"add": "green", "extend": "green", "drop": "red", "unsupported": "bold red"}.get(
            sign, "yellow"
        )
        yield f"      {styled(escape_unprintable(line), style)}"
    if not migration.lines:
        yield "      no migration: only comments or formatting differ"


def _apply_lines(report: ApplyReport) -> Iterator[str]:
    if report.configuration is None:
        return
    name = "apply" if report.rolled_back_to is None else f"rollback to revision {report.rolled_back_to}"
    yield f"cluster {name}: {report.applied_count} applied, {report.deferred_count} deferred/blocked"
    for change in report.plan.changes:
        yield from _change_lines(change, ())
    yield (
        f"  state: revision {report.observations.stored.or_empty.state_revision}, "
        f"converged: {_lower(report.converged)}, written: {_lower(report.state_written)}"
    )


def _status_lines(report: StatusReport) -> Iterator[str]:
    if report.observations.storage is None or not (report.ok or report.state.resources):
        return
    stored = report.observations.stored.or_empty
    name = report.operation or "status"
    yield f"cluster {name}: {len(report.state.resources)} resource(s), revision {stored.state_revision}"
    yield from _lock_lines(report.observations)
    for address, item in sorted(report.state.resource_statuses.items()):
        conditions = f" ({', '.join(item.conditions)})" if item.conditions else ""
        status = styled(item.status, _STATUS_STYLES.get(item.status, "cyan"))
        yield f"  {escape_unprintable(address)}: {status}{conditions}"


def _lock_lines(observations: StateObservations) -> Iterator[str]:
    held = observations.held
    if held is not None:
        age = "" if held.age_seconds is None else f" for {held.age_seconds} seconds"
        yield (
            f"  locked{age} by `cluster {escape_unprintable(held.operation)}` of process {held.pid}: "
            f"{escape_unprintable(held.lock_id)}"
        )


def _history_lines(report: HistoryReport) -> Iterator[str]:
    for entry in report.entries:
        actor = "" if entry["actor"] is None else f" by {escape_unprintable(str(entry['actor']))}"
        converged = (
            "" if entry["config_digest"] is None else f" config {entry['config_digest'][:_SHORT_DIGEST]}"
        )
        yield (
            f"revision {entry['state_revision']}  {entry['written_at']}  {entry['operation']}{actor}  "
            f"{entry['resource_count']} resource(s){converged}"
        )


def _lower(value: bool) -> str:
    return "true" if value else "false"
