"""Errors of Spark jobs as errors of OmniGraph: the reason first, and the error of Spark as the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph import errors
from omnigraph.errors import InvalidInput, OmnigraphError

_TRACEBACK = "Traceback (most recent call last):"
# The class of an exception and the first line of its text, as Python prints them.
_RAISED = re.compile(r"((?:\w+\.)*)(\w+)(?:: (.*))?")
_ERROR_CLASS = re.compile(r"\[[A-Z0-9_.]+\] ")
_JAVA_CLASS = re.compile(r"(?:\w+\.)+\w*(?:Exception|Error): ")


@contextmanager
def raise_task_errors() -> Iterator[None]:
    """Raise the error of a job of Spark as an error of OmniGraph."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise task_error(str(error)) from error


def task_error(text: str) -> OmnigraphError:
    """Return the error with the reason that the text of an error of Spark has.

    >>> text = "[UDF_ERROR] failed\\nTraceback (most recent call last):\\n  File 'f.py'\\nValueError: no day\\n"
    >>> task_error(text).reason
    'a Spark task failed: ValueError: no day'
    >>> task_error("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\\n== DataFrame ==\\n").reason
    'the Spark job failed: Division by zero. SQLSTATE: 22012'
    """
    if "No module named 'omnigraph'" in text:
        return InvalidInput(
            "the Python of the Spark workers does not have omnigraph installed",
            hint="install it there, or set PYSPARK_PYTHON before the session starts",
        )
    _, found, traceback = text.rpartition(_TRACEBACK)
    if found:
        for line in traceback.splitlines():
            raised = _RAISED.fullmatch(line)
            if raised is not None:
                return _task_error(raised[1] or "", raised[2], raised[3] or "")
    lines = [line.strip(": ") for line in text.splitlines() if line.strip()]
    # The first line of an error of Py4J only names the call.
    wanted = next((line for line in lines if not line.startswith("An error occurred while calling")), "")
    return InvalidInput(f"the Spark job failed: {_JAVA_CLASS.sub('', _ERROR_CLASS.sub('', wanted), count=1)}")


def _task_error(module: str, name: str, message: str) -> OmnigraphError:
    kind = getattr(errors, name, None)
    if module == "omnigraph.errors." and isinstance(kind, type) and issubclass(kind, OmnigraphError):
        return kind(message)
    return InvalidInput(
        f"a Spark task failed: {name}: {message}" if message else f"a Spark task failed: {name}"
    )
