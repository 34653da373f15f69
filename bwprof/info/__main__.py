"""``python -m bwprof.info``."""

import sys

from bwprof.info.cli import main

if __name__ == "__main__":
    sys.exit(main())
