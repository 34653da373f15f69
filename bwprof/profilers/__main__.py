"""``python -m bwprof.profilers ncu FILE``."""

import sys

from bwprof.cli.profilers import main

if __name__ == "__main__":
    sys.exit(main())
