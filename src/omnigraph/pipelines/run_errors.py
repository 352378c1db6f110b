"""Errors of a run: one message with the place in the pipeline file, without values of variables."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from omnigraph.errors import ConstraintViolation, InvalidInput, NotFound, OmnigraphError
from omnigraph.pipelines.pipeline_file import Pipeline
from omnigraph.sources.mapping.document import KeyPath

# The name that a load gives to the rows of a target.
_ROWS: Final = re.compile(r"^DataFrame of (node|edge):(\w+): (?:\2 )?")
_ROW_HINT: Final = "convert or filter the rows in a view, or set `on_fail: quarantine`"
# Spark ends its messages with a code and with the position in the SQL, which has one line in most files.
_SPARK_TAIL: Final = re.compile(r"\.? SQLSTATE: \w{5}(?:; line \d+ pos \d+;?)?$")


@contextmanager
def translated_errors(pipeline: Pipeline, path: KeyPath) -> Iterator[None]:
    """Add the place in the file to errors, turn errors of Spark into `InvalidInput`, and hide secret values."""
    from omnigraph.spark.pipelines.source_frames import first_reason

    try:
        yield
    except OmnigraphError as error:
        raise _in_file(pipeline, path, error) from None
    # Spark raises its own errors, and Py4J those of the JVM.
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        reason = _SPARK_TAIL.sub("", first_reason(error))
        raise pipeline.document.error(path, pipeline.secrets.redact(reason)) from None


def _in_file(pipeline: Pipeline, path: KeyPath, error: OmnigraphError) -> OmnigraphError:
    """Return a copy of an error with the place in the file, if it has no other place, and without secret values.

    An error about rows of a load names the target.
    """
    hint = error.hint
    text = str(error).removesuffix(f"\nhint: {hint}")
    rows = _ROWS.match(text)
    if rows is not None:
        path, text, hint = (f"{rows[1]}s", rows[2]), text[rows.end() :], hint or _ROW_HINT
    has_place = error.location is not None and error.location.source is not None
    redacted = pipeline.secrets.redact(text)
    located: OmnigraphError = copy.copy(error)
    if rows is not None or (isinstance(error, InvalidInput | NotFound) and not has_place):
        place = pipeline.document.error(path, redacted)
        located.reason, located.location = place.reason, place.location
        located.details = {**error.details, **place.details}
    elif redacted == text:
        return error
    else:
        located.reason, located.location = redacted, None
    located.args = (located.reason,)
    located.hint = None if hint is None else pipeline.secrets.redact(hint)
    if redacted != text:
        # The data of an error repeats its text.
        located.details = {}
        if isinstance(located, InvalidInput | ConstraintViolation):
            located.violations = ()
    return located
