"""Multipart request bodies, written to files as they arrive."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from omnigraph.errors import InvalidInput, OmnigraphError, ResourceLimit
from omnigraph.protocol.codec import decode_error, encode_error
from omnigraph.protocol.upload_lines import FILE
from omnigraph.server.http.error_responses import HttpError
from omnigraph.store.sync import storage_error_from_os

FORM: Final = "multipart/form-data"
# Each part is a file in one folder.
MAX_PARTS: Final = 20_000
# The names of all parts are kept in memory.
MAX_NAME_BYTES: Final = 8 << 20

_HEADER_BYTES = 16 << 10
# The limit of RFC 2046.
_BOUNDARY_LENGTH = 70
_NAME_LENGTH = 80
_UNSAFE = re.compile(r"[^\w.-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class UploadPart:
    """A received part: form name, file name of the client, media type, and path of its content."""

    name: str
    filename: str | None
    media_type: str
    path: Path

    @property
    def display_name(self) -> str:
        """The name that the client knows."""
        return self.filename or self.name


class Upload:
    """The parts of one body. `close` removes all files.

    The server chooses the paths, so the names that a client sends never reach the file system.
    """

    def __init__(self, boundary: bytes) -> None:
        self.parts: list[UploadPart] = []
        self._home = tempfile.TemporaryDirectory(prefix="omnigraph-upload-", ignore_cleanup_errors=True)
        self._folder = Path(self._home.name)
        # The folder of each form name.
        self._folders: dict[str, Path] = {}
        self._name_bytes = 0
        self._part_paths = re.compile(re.escape(self._home.name) + r"/\d+/(\d{6})-")
        self._headers = _PartHeaders()
        self._file: IO[bytes] | None = None
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": lambda data, start, end: self._headers.add_name(data[start:end]),
                "on_header_value": lambda data, start, end: self._headers.add_value(data[start:end]),
                "on_header_end": lambda: self._headers.end_header(),
                "on_headers_finished": self._open_file,
                "on_part_data": self._write,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
            max_header_size=_HEADER_BYTES,
        )

    def write(self, data: bytes) -> None:
        """Process the next bytes of the body. Raises `InvalidInput` if they are malformed."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidInput(f"the body is not valid {FORM}: {error}") from error
        except OSError as error:
            raise storage_error_from_os(error, "the uploaded file cannot be written") from error

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(part.path.stat().st_size for part in self.parts)

    def finish(self) -> None:
        """Raise `InvalidInput` if the body is incomplete."""
        if not self._ended:
            raise InvalidInput(f"the body is incomplete: the final boundary of {FORM} is missing")

    def close(self) -> None:
        """Remove all files."""
        if self._file is not None:
            self._file.close()
        self._home.cleanup()

    # --- names in messages ---------------------------------------------------------------------------------

    def restore_names(self, value: Any) -> Any:
        """Replace the server's paths in a JSON value by the names that the client has sent."""
        if isinstance(value, str):
            return self._restore_text(value)
        if isinstance(value, Mapping):
            return {key: self.restore_names(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.restore_names(item) for item in value]
        return value

    def restore_error(self, error: OmnigraphError) -> OmnigraphError:
        """Return a copy of an error with the client's names in place of the server's paths."""
        return decode_error(self.restore_names(encode_error(error)))

    def _restore_text(self, text: str) -> str:
        for number in set(self._part_paths.findall(text)):
            part = self.parts[int(number)]
            text = text.replace(str(part.path), part.display_name)
        if self._home.name in text:
            # The pattern of several files with one form name.
            for name, folder in self._folders.items():
                text = text.replace(f"{folder}/*", name)
        return text

    # --- callbacks of the parser ---------------------------------------------------------------------------

    def _begin_part(self) -> None:
        if len(self.parts) >= MAX_PARTS:
            raise load_limit(f"more than {MAX_PARTS:,} files", "load_files", MAX_PARTS, MAX_PARTS + 1)
        self._headers = _PartHeaders()

    def _open_file(self) -> None:
        name, filename, media_type = self._headers.parse()
        self._name_bytes += len(name.encode()) + len((filename or "").encode())
        if self._name_bytes > MAX_NAME_BYTES:
            text = f"file names of more than {MAX_NAME_BYTES:,} bytes"
            raise load_limit(text, "load_name_bytes", MAX_NAME_BYTES, self._name_bytes)
        folder = self._folders.get(name)
        if folder is None:
            folder = self._folders[name] = self._folder / str(len(self._folders))
            folder.mkdir()
        last = re.split(r"[/\\]", filename or name)[-1]
        # The suffix is kept, because it determines the format of the file.
        path = folder / f"{len(self.parts):06d}-{_UNSAFE.sub('_', last)[-_NAME_LENGTH:]}"
        self.parts.append(UploadPart(name, filename, media_type, path))
        self._file = path.open("xb")

    def _write(self, data: bytes, start: int, end: int) -> None:
        assert self._file is not None, "the headers of a part come before its data"
        self._file.write(memoryview(data)[start:end])

    def _end_part(self) -> None:
        assert self._file is not None, "a part has begun before it ends"
        self._file.close()
        self._file = None

    def _end(self) -> None:
        self._ended = True


def parse_boundary(content_type: str) -> bytes:
    """Return the boundary of a multipart media type; `HttpError` with 415 for any other type."""
    media_type, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if media_type != FORM.encode() or not boundary or len(boundary) > _BOUNDARY_LENGTH:
        raise HttpError(
            415, f"Content-Type must be {FORM} with a boundary of at most {_BOUNDARY_LENGTH} characters"
        )
    return boundary


def load_limit(excess: str, resource: str, limit: int, actual: int) -> ResourceLimit:
    """Return the error of a load that exceeds a limit."""
    details = {"resource": resource, "limit": limit, "actual": actual}
    return ResourceLimit(f"{excess} in one load", details=details)


@dataclass(slots=True)
class _PartHeaders:
    """The headers of a part, which arrive in pieces."""

    headers: dict[str, bytes] = field(default_factory=dict)
    name: bytes = b""
    value: bytes = b""

    def add_name(self, piece: bytes) -> None:
        self.name += piece

    def add_value(self, piece: bytes) -> None:
        self.value += piece

    def end_header(self) -> None:
        self.headers[self.name.decode("latin-1").lower()] = self.value
        self.name = self.value = b""

    def parse(self) -> tuple[str, str | None, str]:
        """Return the form name, the file name and the media type of the part."""
        _, options = parse_options_header(self.headers.get("content-disposition", b""))
        try:
            name = options.get(b"name", b"").decode()
            filename = options[b"filename"].decode() if b"filename" in options else None
        except UnicodeDecodeError as error:
            raise InvalidInput("the name of a part is not valid UTF-8") from error
        if not name:
            raise InvalidInput("a part has no name")
        media_type, _ = parse_options_header(self.headers.get("content-type", FILE.encode()))
        return name, filename or None, media_type.decode("latin-1")
