"""``python -m bwprof.sweep``."""

import sys

from bwprof.sweep.cli import main

if __name__ == "__main__":
    sys.exit(main())
