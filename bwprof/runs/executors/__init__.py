"""Where the cases of a run are measured: in this process, or in a child."""
