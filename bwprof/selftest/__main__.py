"""``python -m bwprof.selftest``."""

import sys

from bwprof.selftest.cli import main

if __name__ == "__main__":
    sys.exit(main())
