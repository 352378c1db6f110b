"""The first version of `__manifest`, which marks an unfinished initialization."""

from __future__ import annotations

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.schema import LanceSchema

from omnigraph.errors import NotFound
from omnigraph.store.lance.lance_errors import storage_error_from_lance
from omnigraph.store.lance.lance_files import data_files
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.manifest_errors import MANIFEST as PATH
from omnigraph.store.manifest.manifest_files import UNFINISHED, unfinished_name
from omnigraph.store.manifest.manifest_writer import FileLayout, write_named_file
from omnigraph.store.manifest.row_files import ROW_SCHEMA


def begin_init(root: LanceRoot) -> None:
    """Create the dataset with the row that marks an unfinished initialization, if it does not exist.

    `write_dataset` is not safe here: of two concurrent creators, one overwrites the dataset of the other. This
    commit is based on version 0, which never exists. One creator makes version 1, and the others fail.
    """
    row = pa.table({"key": [UNFINISHED], "body": ["{}"]}, schema=ROW_SCHEMA)
    session, name, layout = root.file_session(PATH), unfinished_name(), FileLayout(ROW_SCHEMA)
    first = write_named_file(root, PATH, session, name, [row], layout, with_digest=True)
    root.sync(PATH, data_files([first]))
    try:
        lance.LanceDataset.commit(
            root.dataset_uri(PATH),
            LanceOperation.Overwrite(LanceSchema.from_pyarrow(ROW_SCHEMA), [first]),
            read_version=0,
            storage_options=dict(root.options) or None,
            enable_v2_manifest_paths=True,
            max_retries=0,
        )
    except (OSError, ValueError) as error:
        try:
            root.open(PATH)
        except NotFound:
            raise storage_error_from_lance(error, f"create {PATH}") from error
