"""``python -m bwprof.selftest``."""

import sys

from bwprof.cli.selftest import main

if __name__ == "__main__":
    sys.exit(main())
