"""Records: what is kept of measurements, and found again: baselines, proof bundles, the key that joins rows."""
