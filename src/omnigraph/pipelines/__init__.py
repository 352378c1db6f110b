"""Pipelines as files: sources, SQL views, targets, quality rules, audits and a publish rule in one document."""

from omnigraph.pipelines.commands import plan, run, status, test, validate
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.pipelines.reports import (
    AuditResult,
    PlanReport,
    RunReport,
    RunStatus,
    StatusReport,
    TargetPlan,
    TestResult,
)

__all__ = [
    "AuditResult",
    "Pipeline",
    "PlanReport",
    "RunReport",
    "RunStatus",
    "StatusReport",
    "TargetPlan",
    "TestResult",
    "plan",
    "run",
    "status",
    "test",
    "validate",
]
