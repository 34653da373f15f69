"""Stored measurements: keys that join rows, baselines, proof bundles, comparisons, histories."""
