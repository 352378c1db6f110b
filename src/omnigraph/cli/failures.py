"""How the program ends after an error: what is printed on stderr, and the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from omnigraph.cli.render.output import print_error, print_error_json, print_internal_error
from omnigraph.errors import InvalidInput, OmnigraphError

FAILURE = 1


@contextmanager
def reported_failures(*, debug: bool = False, as_json: bool = False) -> Iterator[None]:
    """Print an exception of the block on stderr, and exit with `FAILURE`.

    The Python traceback is printed only with `debug`. With `as_json` an error is a JSON document.
    """
    try:
        try:
            yield
        finally:
            # A closed pipe is detected here. At interpreter exit it could not be handled.
            if sys.stdout is not None:
                sys.stdout.flush()
        return
    except OmnigraphError as error:
        _report(error, debug, as_json)
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does. Nothing is printed.
        _discard_stdout()
    except OSError as error:
        _discard_stdout()
        reason = error.strerror or str(error)
        # Without a file name the error is about stdout.
        named = f"{error.filename}: {reason.lower()}" if error.filename else None
        _report(InvalidInput(named or f"cannot write the output: {reason}"), debug, as_json)
    except Exception as error:  # noqa: BLE001 - an internal error is reported without a traceback
        _report(error, debug, as_json)
    sys.exit(FAILURE)


def _report(error: Exception, debug: bool, as_json: bool) -> None:
    # stderr may be closed too. The exit code still reports the failure.
    with suppress(OSError):
        if debug:
            import traceback

            traceback.print_exception(error)
        if not isinstance(error, OmnigraphError):
            print_internal_error(error)
        elif as_json:
            print_error_json(error)
        else:
            print_error(error)


def _discard_stdout() -> None:
    """Redirect stdout to the null device, so that flushing its buffer at interpreter exit cannot fail again."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
