"""A configuration directory for each test, on disk or in a bucket."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster_control.cluster_files import ClusterFolder, write_cluster
from tests.support.s3 import Bucket
from tests.support.s3_fixtures import s3, s3_server

__all__ = ["s3", "s3_server"]


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterFolder:
    """A valid configuration that is not applied."""
    return write_cluster(tmp_path / "cluster")


@pytest.fixture(scope="session")
def applied_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "cluster"
    write_cluster(path).start()
    return path


@pytest.fixture
def applied(tmp_path: Path, applied_template: Path) -> ClusterFolder:
    """An applied configuration: revision 2, converged."""
    shutil.copytree(applied_template, tmp_path / "cluster")
    path = tmp_path / "cluster"
    return ClusterFolder(path, {}, str(path))


@pytest.fixture
def remote(tmp_path: Path, s3: Bucket) -> ClusterFolder:
    """A valid configuration whose storage is in a bucket."""
    return write_cluster(tmp_path / "cluster", f"{s3.uri}/company", s3.options)
