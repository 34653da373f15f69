"""``python -m bwprof.sweep``."""

import sys

from bwprof.terminal import guarded


def _main() -> int:
    from bwprof.sweep.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(guarded(_main, failed=3))
