"""The route that tells a caller which actions the policy allows."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.policy.bundle import BRANCH_ACTIONS, PLAIN_ACTIONS, TARGET_ACTIONS
from omnigraph.policy.gate import Access
from omnigraph.protocol import responses
from omnigraph.protocol.requests import BranchName
from omnigraph.server.http.request_context import Context, RequestContext
from omnigraph.server.http.routing import SUCCESS, graph_router

router = graph_router("server")


@router.get(
    "/permissions",
    operation_id="cluster_getPermissions",
    response_model=responses.PermissionsOutput,
    responses=SUCCESS,
)
async def get_permissions(
    context: Context, branch: BranchName = "main", target: BranchName | None = None
) -> Response:
    """Get the actions that the caller may perform. Requires a token and no permission.

    `branch` is the branch that is read or written, and the source of a merge. `target` is the branch that is merged
    into, created, deleted or migrated; by default the same.
    """
    other = branch if target is None else target
    actions = {
        **{action: _may(context, Access(action, branch)) for action in BRANCH_ACTIONS},
        **{action: _may(context, _targeted(action, branch, other)) for action in TARGET_ACTIONS},
        **{action: _may(context, Access(action)) for action in PLAIN_ACTIONS},
    }
    body: dict[str, Any] = {"branch": branch, "target": other, "actions": actions}
    return await context.read(lambda _: {"actor_id": context.actor, **body})


def _targeted(action: str, branch: str, target: str) -> Access:
    """Return an access with the branches that the route of the action checks."""
    has_source = action in ("branch_create", "branch_merge")
    return Access(action, branch if has_source else None, target)


def _may(context: RequestContext, access: Access) -> bool:
    gate = context.hosted.gate
    return gate is None or gate.decide(context.actor, access).allowed
