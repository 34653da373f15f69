"""Nsight Compute: its command line, and what it prints, as frames."""
