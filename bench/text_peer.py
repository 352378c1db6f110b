"""A full-text index of LanceDB or DuckDB in a process of its own, for `bench.text_search`.

Both are installed in an environment of their own, so this file imports nothing of the project. Requests and answers
are lines of JSON, as in `search_peer.py`.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class LanceDb:
    """A table of LanceDB with an inverted index whose tokens are lower-case words."""

    def __init__(self, folder: str) -> None:
        import lancedb

        self._database = lancedb.connect(folder)
        self._table: Any = None

    def load(self, file: str) -> None:
        """Create the table from an Arrow file."""
        self._table = self._database.create_table("docs", _read(file))

    def build(self) -> None:
        """Build the inverted index."""
        self._table.create_fts_index("body", stem=False, remove_stop_words=False, max_token_length=None)

    def search(self, query: str) -> list[float]:
        """Return the scores of the ten best rows."""
        found = self._table.search(query, query_type="fts").select(["name", "_score"]).limit(10)
        scores: list[float] = found.to_arrow()["_score"].to_pylist()
        return scores


class DuckDb:
    """A table of DuckDB with the index of its extension ``fts``."""

    def __init__(self, folder: str) -> None:
        import duckdb

        package = find_spec("duckdb_extension_fts")
        assert package is not None
        assert package.origin is not None
        extension = next(Path(package.origin).parent.rglob("fts.duckdb_extension"))
        self._database = duckdb.connect(f"{folder}/docs.duckdb")
        self._database.execute(f"LOAD '{extension}'")

    def load(self, file: str) -> None:
        """Create the table from an Arrow file."""
        rows = _read(file)
        self._database.register("given", rows)
        self._database.execute("CREATE TABLE docs AS SELECT * FROM given")

    def build(self) -> None:
        """Build the inverted index."""
        options = "stemmer = 'none', stopwords = 'none', ignore = '[^a-z]+', strip_accents = 0, lower = 1"
        self._database.execute(f"PRAGMA create_fts_index('docs', 'name', 'body', {options})")

    def search(self, query: str) -> list[float]:
        """Return the scores of the ten best rows."""
        text = (
            "SELECT name, fts_main_docs.match_bm25(name, ?) AS score FROM docs"
            " WHERE score IS NOT NULL ORDER BY score DESC, name LIMIT 10"
        )
        return [score for _, score in self._database.execute(text, [query]).fetchall()]


def _read(file: str) -> Any:
    import pyarrow as pa

    with pa.memory_map(file) as source:
        return pa.ipc.open_file(source).read_all()


def main() -> None:
    """Answer requests until the input ends."""
    library, folder = sys.argv[1:3]
    Path(folder).mkdir(parents=True, exist_ok=True)
    peer = {"lancedb": LanceDb, "duckdb": DuckDb}[library](folder)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        wall, processor = time.perf_counter(), time.process_time()
        result = getattr(peer, method)(*arguments)
        took = time.perf_counter() - wall, time.process_time() - processor
        sys.stdout.write(json.dumps([result, *took]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
