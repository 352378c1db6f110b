"""Translation of the errors of Arrow and of the operating system for a file."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from omnigraph.errors import InvalidInput, NotFound, StorageError


@contextmanager
def translate_arrow_errors(name: str | None) -> Iterator[None]:
    """Raise errors of this library instead of those of Arrow and of the operating system; `name` is the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"file `{name}` not found") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read `{name}`: {error}", details={"source": name}) from error
    except (OSError, EOFError, zlib.error) as error:
        raise StorageError(f"cannot read `{name}`: {error}", details={"source": name}) from error


def translated_batches(batches: Iterable[pa.RecordBatch], name: str | None) -> Iterator[pa.RecordBatch]:
    """Yield batches whose reading raises translated errors."""
    iterator = iter(batches)
    while True:
        with translate_arrow_errors(name):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


def validated_batches(batches: Iterable[pa.RecordBatch], name: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file after validation; Arrow itself accepts invalid offsets and invalid UTF-8."""
    return translated_batches(map(_validate, batches), name)


def _validate(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)
    return batch
