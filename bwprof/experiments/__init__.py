"""Experiments: two sides compared turn by turn (`bwprof.ab`), the variants of an operation (`bwprof.ablation`)."""
