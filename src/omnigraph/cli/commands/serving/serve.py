"""`omnigraph serve`: serve graphs over HTTP."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.commands.serving.hosted_address import find_hosting, is_graph
from omnigraph.cli.options import GlobalOptions
from omnigraph.cli.settings.config import load_config
from omnigraph.errors import InvalidInput
from omnigraph.extras import requires


def serve(
    ctx: typer.Context,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG|GRAPH",
            help="YAML configuration, a path or s3:// URI, a folder of *.omni graphs, a cluster, or one graph.",
        ),
    ] = None,
    bind: Annotated[
        str,
        typer.Option(
            "--bind",
            metavar="HOST:PORT",
            envvar="OMNIGRAPH_BIND",
            help="Address to listen on.",
            show_default=True,
        ),
    ] = "127.0.0.1:8080",
    unauthenticated: Annotated[
        bool,
        typer.Option(
            "--unauthenticated", help="Serve without access control. Otherwise bearer tokens are required."
        ),
    ] = False,
    require_all_graphs: Annotated[
        bool, typer.Option("--require-all-graphs", help="Fail to start if any graph cannot be served.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Allow --unauthenticated on an address that other machines can reach."),
    ] = False,
    verify_reads: Annotated[
        bool,
        typer.Option(
            "--verify-reads", help="Compare every file in storage with its digest when it is first read."
        ),
    ] = False,
    tls_cert: Annotated[
        str | None,
        typer.Option(
            "--tls-cert",
            metavar="FILE",
            help="PEM file of the TLS certificate chain. Requires --tls-key. SIGHUP reads both again.",
        ),
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option(
            "--tls-key",
            metavar="FILE",
            help="PEM file of the private key of --tls-cert.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            metavar="N",
            help="Processes that answer reads. With more than one, writers are processes of their own.",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-origin",
            metavar="ORIGIN",
            help="Origin of a web application that may use the server, for example https://app.org. Repeatable.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="token|open|off|HOST:PORT",
            help="Access to /metrics: with a token, without, not at all, or at an address of its own.",
        ),
    ] = None,
    studio: Annotated[
        bool, typer.Option("--studio", help="Serve the Studio, the web interface, at /studio.")
    ] = False,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Serve each graph to agents over MCP, at /graphs/ID/mcp.")
    ] = False,
) -> None:
    """Serve graphs over HTTP until the process is stopped.

    Bearer tokens are configured in the environment: OMNIGRAPH_SERVER_BEARER_TOKENS_FILE names a JSON file that maps
    actors to tokens. The address is printed when the server accepts requests; the log goes to stderr. SIGHUP
    reloads tokens, policies and the TLS certificate.
    """
    with requires("server", "the HTTP server"):
        from omnigraph.server.run import ServeOptions
        from omnigraph.server.run import serve as run

    if mcp:
        with requires("mcp", "the MCP server"):
            import omnigraph.mcp.server  # noqa: F401 - fails now rather than at the first request

    chosen = ctx.find_object(GlobalOptions) or GlobalOptions()
    for option in chosen.names():
        if option != "--cluster":
            raise InvalidInput(f"`serve` reads its graphs from CONFIG; {option} does not apply.")
    cluster = chosen.cluster
    if config is None and cluster is None:
        cluster = os.environ.get("OMNIGRAPH_CLUSTER") or None
    if (config is None) == (cluster is None):
        raise typer.BadParameter("pass either CONFIG or --cluster", param_hint="'CONFIG'")
    verify = verify_reads or chosen.verify_reads
    options = ServeOptions(
        bind,
        unauthenticated,
        require_all_graphs,
        force,
        verify,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        workers=workers or 0,
        cors_origins=tuple(cors_origin or ()),
        metrics=metrics,
        studio=studio,
        mcp=mcp,
    )
    served = find_hosting(config) if config is not None and is_graph(config) else config
    run(served or _cluster(ctx, str(cluster)), options, os.environ)


def _cluster(ctx: typer.Context, named: str) -> str:
    """Return the address of `--cluster`. Raises `InvalidInput` if it is a directory without a cluster."""
    from omnigraph.cluster.diagnostics import ClusterFailure, error
    from omnigraph.cluster.serving.served_cluster import find_cluster_root

    address = load_config(ctx).clusters.get(named, named)
    if Path(address).is_dir() and find_cluster_root(address) is None:
        message = "there is neither cluster.yaml nor a ledger in the directory"
        raise ClusterFailure(error("cluster_state_missing", address, message))
    return address


def main() -> None:
    """Run `omnigraph serve` as the program `omnigraph-server`."""
    from omnigraph.cli.main import app

    app(["serve", *sys.argv[1:]], prog_name="omnigraph")
