"""``python -m bwprof.sweep``."""

import sys

from bwprof.cli.shared.guard import guarded


def _main() -> int:
    from bwprof.cli.sweep import main

    return main()


if __name__ == "__main__":
    sys.exit(guarded(_main))
