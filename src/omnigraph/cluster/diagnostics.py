"""Diagnostics of a cluster: a stable code, a severity, the place and the message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from omnigraph.errors import InvalidInput, OmnigraphError

Severity: TypeAlias = Literal["error", "warning"]

# The codes that are errors. A released code never changes its meaning.
ERROR_CODES: Final = frozenset(
    [
        "apply_approval_invariant_violation",
        "approval_not_required",
        "approval_write_error",
        "catalog_payload_digest_mismatch",
        "catalog_payload_missing",
        "catalog_payload_read_error",
        "cluster_config_read_error",
        "cluster_empty",
        "cluster_no_healthy_graphs",
        "cluster_recovery_unattributed",
        "cluster_state_missing",
        "config_dir_not_found",
        "conflicting_graph_manifest_observation",
        "dangling_embedding_provider_reference",
        "dangling_graph_reference",
        "duplicate_policy_binding",
        "duplicate_query_name",
        "duplicate_yaml_key",
        "embedding_api_key_inline",
        "embedding_api_key_required",
        "embedding_provider_digest_mismatch",
        "embedding_provider_missing",
        "embedding_provider_profile_missing",
        "empty_metadata_name",
        "external_blob_policy_digest_mismatch",
        "future_phase_field",
        "graph_create_failed",
        "graph_create_incomplete",
        "graph_delete_export_in_progress",
        "graph_delete_failed",
        "graph_not_applied",
        "graph_observation_error",
        "invalid_cluster_yaml",
        "invalid_embedding_provider",
        "invalid_external_blob_base",
        "invalid_external_blob_policy",
        "invalid_resource_id",
        "invalid_state_json",
        "invalid_state_lock",
        "invalid_storage_root",
        "policy_bindings_missing",
        "policy_file_missing",
        "policy_invalid",
        "policy_missing_applies_to",
        "policy_mixed_binding_kinds",
        "query_dir_unreadable",
        "query_file_missing",
        "query_key_mismatch",
        "query_parse_error",
        "query_typecheck_error",
        "recovery_sidecar_write_error",
        "removed_streaming_declaration",
        "resource_content_changed",
        "resource_payload_write_error",
        "revision_not_found",
        "schema_apply_failed",
        "schema_catalog_error",
        "schema_file_missing",
        "schema_parse_error",
        "state_already_exists",
        "state_cas_mismatch",
        "state_lock_error",
        "state_lock_held",
        "state_lock_id_mismatch",
        "state_lock_missing",
        "state_lock_read_error",
        "state_missing",
        "state_read_error",
        "state_write_error",
        "storage_root_invalid",
        "unsupported_cluster_config_version",
        "unsupported_state_backend",
        "unsupported_state_lock_version",
        "unsupported_state_version",
        "wrong_kind_reference",
    ]
)
# The codes that are warnings. Three of them are errors in other commands.
WARNING_CODES: Final = frozenset(
    [
        "apply_dependency_blocked",
        "apply_unsupported_change",
        "approval_stale",
        "catalog_payload_mismatch",
        "catalog_payload_missing",
        "cluster_recovery_pending",
        "cluster_recovery_rolled_forward",
        "external_blob_ingress_default_deny",
        "graph_create_skipped",
        "graph_delete_incomplete",
        "graph_delete_skipped",
        "graph_observation_error",
        "query_dir_empty",
        "query_typecheck_skipped",
        "recovery_sidecar_cleanup_failed",
        "recovery_sidecar_read_error",
        "schema_apply_skipped",
        "schema_preview_unavailable",
        "state_lock_disabled",
        "state_lock_error",
        "state_missing",
    ]
)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `path` is a path in `cluster.yaml`, the address of a resource, or a file.

    >>> error("schema_file_missing", "graphs.team.schema", "no file at team.pg").to_json()["severity"]
    'error'
    """

    code: str
    severity: Severity
    path: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "message": self.message,
        }


def error(code: str, path: str, message: str) -> Diagnostic:
    """Return an error."""
    assert code in ERROR_CODES, code
    return Diagnostic(code, "error", path, message)


def warning(code: str, path: str, message: str) -> Diagnostic:
    """Return a warning."""
    assert code in WARNING_CODES, code
    return Diagnostic(code, "warning", path, message)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Return whether a diagnostic is an error."""
    return any(item.severity == "error" for item in diagnostics)


def reason(failure: OmnigraphError) -> str:
    """Return the message of an error of the library on one line, with its hint."""
    text = " ".join(failure.message.split())
    return text if failure.hint is None else f"{text} ({' '.join(failure.hint.split())})"


class ClusterFailure(InvalidInput):
    """A cluster operation cannot continue; `diagnostics` says why.

    Correct what the diagnostics name and run the operation again. The ledger has not changed.
    """

    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, *diagnostics: Diagnostic) -> None:
        first = next((item for item in diagnostics if item.severity == "error"), diagnostics[0])
        details: dict[str, Any] = {
            "code": first.code,
            "diagnostics": [item.to_json() for item in diagnostics],
        }
        super().__init__(f"{first.code}: {first.path}: {first.message}", details=details)
        self.diagnostics = diagnostics
