"""Around every command that measures: what is logged, signals, and the exit codes of what goes wrong."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable

from bwprof import _core
from bwprof.cli.guard import INCOMPLETE, INTERRUPTED, USAGE
from bwprof.runs.interrupts import Interrupts, StoppedError


def measuring(parsed: argparse.Namespace, command: Callable[[Interrupts], int]) -> int:
    """The exit code of a command."""
    level = logging.DEBUG if parsed.verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, format="bwprof: %(levelname)s: %(message)s", level=level, force=True)
    for noisy in ("matplotlib", "PIL"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        with Interrupts() as interrupts:
            return command(interrupts)
    except (KeyboardInterrupt, StoppedError):
        sys.stderr.write("bwprof: interrupted\n")
        return INTERRUPTED
    except (ValueError, _core.UnavailableError) as error:
        sys.stderr.write(f"bwprof: error: {error}\n")
        return USAGE
    except RecursionError:
        sys.stderr.write("bwprof: error: what was read is nested too deeply\n")
        return USAGE
    except OSError as error:
        if error.errno is not None and error.filename is None:
            raise  # a stream's
        said = f"{error.filename}: {error.strerror}" if error.errno is not None else str(error)
        sys.stderr.write(f"bwprof: error: {said}\n")
        return USAGE
    except _core.DeviceError as error:
        sys.stderr.write(f"bwprof: error: {error}\n")
        return INCOMPLETE
