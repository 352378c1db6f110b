"""Optional dependencies: the libraries that an extra of the package installs, and the error when one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from omnigraph.errors import InvalidInput

# The libraries that only this extra installs and that the package imports, by extra. The extras are declared in
# pyproject.toml.
LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "avro": ("fastavro",),
    "aws": ("boto3", "botocore"),
    "mcp": ("mcp", "mcp_types"),
    "networkx": ("networkx",),
    "onnx": ("onnxruntime", "tokenizers"),
    "otel": ("opentelemetry",),
    "pandas": ("pandas",),
    "polars": ("polars",),
    "server": ("fastapi", "httptools", "prometheus_client", "python_multipart", "starlette", "uvicorn"),
    "spark": ("py4j", "pyspark"),
}


@contextmanager
def requires(extra: str, feature: str) -> Iterator[None]:
    """Raise an `InvalidInput` that names the extra if an import in the block fails because its library is missing.

    >>> with requires("avro", "reading Avro"):
    ...     raise ModuleNotFoundError(name="fastavro")
    Traceback (most recent call last):
    omnigraph.errors.InvalidInput: reading Avro needs fastavro; install it with: pip install 'omnigraph[avro]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in LIBRARIES[extra]:
            raise
        raise InvalidInput(
            f"{feature} needs {library}; install it with: pip install 'omnigraph[{extra}]'",
            details={"extra": extra, "library": library},
        ) from error


def is_installed(extra: str) -> bool:
    """Whether every library of an extra is installed. None of them is imported."""
    return all(find_spec(library) is not None for library in LIBRARIES[extra])
