"""The kinds of vector index: their names in a table, and the parameters that Lance builds them with.

The name of an index has its kind and its metric, so a query finds the index that ranks as it does. An index of
another metric than the declared one is not used, and the next `optimize` replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import lance
import pyarrow as pa

from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import METRICS, VECTOR_INDEX_KINDS, Metric, VectorIndexKind

# A table with fewer rows is searched exactly.
MIN_TABLE_ROWS: Final = 10_000
# Fewer rows than this that no segment covers are searched exactly, and get no segment.
MIN_SEGMENT_ROWS: Final = 4_096
# The codebook of a product quantization has 256 entries, which are trained from the vectors.
MIN_VECTORS: Final = 256
FEW_VECTORS: Final = f"fewer than {MIN_VECTORS} rows have a vector; they are searched exactly"

_LANCE_KINDS: Final[dict[VectorIndexKind, str]] = {
    "ivf_rq": "IVF_RQ",
    "ivf_pq": "IVF_PQ",
    "hnsw": "IVF_HNSW_SQ",
}
# Numbers of a vector that one code of a product quantization stands for.
_NUMBERS_PER_CODE: Final = 4


@dataclass(frozen=True, slots=True)
class VectorIndexMethod:
    """A kind of vector index with a metric.

    `name` identifies both: it is part of the name of an index, where a scalar index has its kind.

    >>> VectorIndexMethod("ivf_rq", "cosine").name
    'IVF_RQ_COSINE'
    >>> VectorIndexMethod.parse("HNSW_L2")
    VectorIndexMethod(kind='hnsw', metric='l2')
    >>> VectorIndexMethod.parse("BTREE") is None
    True
    """

    kind: VectorIndexKind
    metric: Metric

    @property
    def name(self) -> str:
        """The kind and the metric."""
        return f"{self.kind}_{self.metric}".upper()

    @classmethod
    def parse(cls, name: str) -> VectorIndexMethod | None:
        """Return the method with a name; None if it is not that of a vector index."""
        return _BY_NAME.get(name.upper())

    def parameters(self, dimension: int) -> dict[str, Any]:
        """Return the arguments with which Lance builds a segment over vectors of a dimension."""
        parameters: dict[str, Any] = {"index_type": _LANCE_KINDS[self.kind], "metric": self.metric}
        if self.kind == "ivf_pq":
            parameters["num_sub_vectors"] = _num_codes(dimension)
        return parameters


_BY_NAME: Final = {
    method.name: method
    for method in (VectorIndexMethod(kind, metric) for kind in VECTOR_INDEX_KINDS for metric in METRICS)
}


def build_vector_segment(
    dataset: lance.LanceDataset, column: str, method: VectorIndexMethod, name: str, fragments: list[int]
) -> Any:
    """Build an uncommitted segment over some fragments.

    Raises `InvalidInput` if they have too few vectors to train the quantization of the index.
    """
    chosen = [item for item in dataset.get_fragments() if item.fragment_id in set(fragments)]
    found = dataset.scanner(
        columns=[column], filter=f"{column} IS NOT NULL", fragments=chosen, limit=MIN_VECTORS
    )
    if found.to_table().num_rows < MIN_VECTORS:
        raise InvalidInput(FEW_VECTORS)
    kind: pa.DataType = dataset.schema.field(column).type
    parameters = method.parameters(kind.list_size)
    return dataset.create_index_uncommitted(
        column, name=name, replace=True, fragment_ids=fragments, **parameters
    )


def _num_codes(dimension: int) -> int:
    """Return the number of codes of a product quantization, which divides the dimension.

    >>> _num_codes(128), _num_codes(768), _num_codes(30), _num_codes(7)
    (32, 192, 10, 7)
    """
    for numbers in range(_NUMBERS_PER_CODE, 1, -1):
        if dimension % numbers == 0:
            return dimension // numbers
    return dimension
