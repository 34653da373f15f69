"""``python -m bwprof.compare``."""

import sys

from bwprof.cli.compare import main

if __name__ == "__main__":
    sys.exit(main())
