"""The subcommands of `bwprof`: each has a function `main_NAME` in one of these modules."""
