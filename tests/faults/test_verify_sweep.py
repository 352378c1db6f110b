"""Every file of a graph is damaged in every way, one at a time: a verification names the file.

Only files that a commit of a branch needs count. The others are superseded: older versions of `__manifest` with
their rows and transaction files, the version hints of Lance, and files that garbage collection has not removed.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.store.manifest.manifest import PATH
from tests.maintain.damage import DAMAGES, build_graph, find_damage, flip_bit, stored_files, verify_path

pytestmark = [pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(3_600)]

FLIPS_PER_FILE = 12


def current_files(path: Path) -> Iterator[str]:
    """Yield the files that the commits of all branches need: those that a verification reads."""
    with og.open(path, "r") as handle:
        repository = handle._repository
        view = repository.manifest.refresh()
        rows = {f"{PATH}/data/{file.name}" for file in view.files}
    versions = sorted(path.glob(f"{PATH}/_versions/*.manifest"))
    rows.add(str(versions[0].relative_to(path)))
    for name in stored_files(path):
        is_table = not name.startswith("__") and not name.endswith("latest_version_hint.json")
        if name in rows or is_table:
            yield name


def test_verify_every_damage_of_every_needed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "g"
    build_graph(path)
    rng = random.Random(11)
    tried: Counter[str] = Counter()
    silent: list[tuple[str, str]] = []
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    for name in current_files(path):
        file = copy / name
        data = file.read_bytes()
        flips = [rng.randrange(len(data) * 8) for _ in range(FLIPS_PER_FILE)]
        for how in (*DAMAGES, *map(str, flips)):
            if how in DAMAGES:
                DAMAGES[how](file)
            else:
                flip_bit(file, int(how))
            found = find_damage(verify_path(copy, all_commits=True), name)
            tried[how if how in DAMAGES else "flipped"] += 1
            if found is None:
                silent.append((name, how))
            file.write_bytes(data)
    assert tried["deleted"] > 60
    assert silent == [], f"{len(silent)} of {dict(tried)}"
