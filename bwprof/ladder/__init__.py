"""Ladders of variants, measured rung by rung: `bwprof.ablation`."""
