"""The parts of a multipart body as files in a folder of their own, and the names that clients know them by."""

from __future__ import annotations

import copy
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from omnigraph.errors import ConstraintViolation, InvalidInput, OmnigraphError, ResourceLimit
from omnigraph.protocol.upload_lines import FILE
from omnigraph.server.http.error_responses import Refused
from omnigraph.store.sync import storage_error_from_os

FORM: Final = "multipart/form-data"
# Each part is a file, of which a folder can hold only so many well.
MOST_PARTS: Final = 20_000
# The names of all parts together, which are kept in memory.
MOST_NAME_BYTES: Final = 8 << 20

_HEADER_BYTES = 16 << 10
# No form has a longer one, by RFC 2046.
_BOUNDARY_LENGTH = 70
_NAME_LENGTH = 80
_ODD = re.compile(r"[^\w.-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    """A part that has arrived: its name in the form, what its client calls it, its media type, and its bytes."""

    name: str
    label: str | None
    kind: str
    path: Path


class Upload:
    """The parts of one body, as it arrives. `close` removes all of them; then nothing is left.

    Parts are written under names of our own, so that no name of a client leads anywhere.
    """

    def __init__(self, boundary: bytes) -> None:
        self.parts: list[Part] = []
        self._home = tempfile.TemporaryDirectory(prefix="omnigraph-upload-", ignore_cleanup_errors=True)
        self._folder = Path(self._home.name)
        self._folders: dict[str, Path] = {}
        self._name_bytes = 0
        self._numbers = re.compile(re.escape(self._home.name) + r"/\d+/(\d{6})-")
        self._arriving = _Arriving()
        self._file: IO[bytes] | None = None
        self._ended = False
        # The parser calls these as it goes.
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._arriving.field(data[start:end]),
                "on_header_value": lambda data, start, end: self._arriving.value(data[start:end]),
                "on_header_end": lambda: self._arriving.end(),
                "on_headers_finished": self._open,
                "on_part_data": self._write,
                "on_part_end": self._close_part,
                "on_end": self._end,
            },
            max_header_size=_HEADER_BYTES,
        )

    def write(self, data: bytes) -> None:
        """Take the next bytes of the body. `InvalidInput` when they are not what they should be."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidInput(f"the body is no {FORM}: {error}") from error
        except OSError as error:
            raise storage_error_from_os(error, "what was sent cannot be kept") from error

    def finish(self) -> None:
        """Return when the body was whole."""
        if not self._ended:
            raise InvalidInput(f"the body breaks off: the last boundary of {FORM} is missing")

    def close(self) -> None:
        """Remove everything."""
        if self._file is not None:
            self._file.close()
        self._home.cleanup()

    # --- names ---------------------------------------------------------------------------------------------

    def renamed(self, value: Any) -> Any:
        """What is told, with files under the names that their client knows them by."""
        if isinstance(value, str):
            return self._told(value)
        if isinstance(value, Mapping):
            return {key: self.renamed(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.renamed(item) for item in value]
        return value

    def renamed_error(self, error: OmnigraphError) -> OmnigraphError:
        """The same error about the same files, under the names that their client knows them by."""
        found = copy.copy(error)
        found.reason = self.renamed(error.reason)
        found.details = self.renamed(error.details)
        found.hint = self.renamed(error.hint)
        if error.location is not None:
            found.location = replace(error.location, source=self.renamed(error.location.source))
        if isinstance(found, ConstraintViolation):
            found.violations = tuple(self.renamed(found.violations))
        return found

    def _told(self, text: str) -> str:
        for number in set(self._numbers.findall(text)):
            part = self.parts[int(number)]
            text = text.replace(str(part.path), part.label or part.name)
        if self._home.name in text:
            # A pattern for several files of one name.
            for name, folder in self._folders.items():
                text = text.replace(f"{folder}/*", name)
        return text

    # --- what the parser calls -----------------------------------------------------------------------------

    def _begin(self) -> None:
        if len(self.parts) >= MOST_PARTS:
            raise too_much(f"more than {MOST_PARTS:,} files", "load_files", MOST_PARTS, MOST_PARTS + 1)
        self._arriving = _Arriving()

    def _open(self) -> None:
        name, label, kind = self._arriving.described()
        self._name_bytes += len(name.encode()) + len((label or "").encode())
        if self._name_bytes > MOST_NAME_BYTES:
            text = f"names of files of more than {MOST_NAME_BYTES:,} bytes"
            raise too_much(text, "load_name_bytes", MOST_NAME_BYTES, self._name_bytes)
        folder = self._folders.get(name)
        if folder is None:
            folder = self._folders[name] = self._folder / str(len(self._folders))
            folder.mkdir()
        last = re.split(r"[/\\]", label or name)[-1]
        # What a name ends in says what is in the file.
        path = folder / f"{len(self.parts):06d}-{_ODD.sub('_', last)[-_NAME_LENGTH:]}"
        self.parts.append(Part(name, label, kind, path))
        self._file = path.open("xb")

    def _write(self, data: bytes, start: int, end: int) -> None:
        assert self._file is not None, "the headers of a part come before its data"
        self._file.write(memoryview(data)[start:end])

    def _close_part(self) -> None:
        assert self._file is not None, "a part that ends has begun"
        self._file.close()
        self._file = None

    def _end(self) -> None:
        self._ended = True


def boundary_of(content_type: str) -> bytes:
    """What is between the parts of a body of this type; 415 when it has no parts."""
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if kind != FORM.encode() or not boundary or len(boundary) > _BOUNDARY_LENGTH:
        raise Refused(
            415, f"Content-Type must be {FORM} with a boundary of at most {_BOUNDARY_LENGTH} characters"
        )
    return boundary


def too_much(what: str, resource: str, limit: int, actual: int) -> ResourceLimit:
    """The refusal of a load of which something is more than a server holds."""
    details = {"resource": resource, "limit": limit, "actual": actual}
    return ResourceLimit(f"{what} in one load", details=details)


@dataclass(slots=True)
class _Arriving:
    """The headers of a part, which come in pieces."""

    headers: dict[str, bytes] = field(default_factory=dict)
    name: bytes = b""
    text: bytes = b""

    def field(self, piece: bytes) -> None:
        self.name += piece

    def value(self, piece: bytes) -> None:
        self.text += piece

    def end(self) -> None:
        self.headers[self.name.decode("latin-1").lower()] = self.text
        self.name = self.text = b""

    def described(self) -> tuple[str, str | None, str]:
        """The name of the part, of its file, and its media type."""
        _, options = parse_options_header(self.headers.get("content-disposition", b""))
        try:
            name = options.get(b"name", b"").decode()
            label = options[b"filename"].decode() if b"filename" in options else None
        except UnicodeDecodeError as error:
            raise InvalidInput("the name of a part is not valid text") from error
        if not name:
            raise InvalidInput("a part has no name")
        kind, _ = parse_options_header(self.headers.get("content-type", FILE.encode()))
        return name, label or None, kind.decode("latin-1")
