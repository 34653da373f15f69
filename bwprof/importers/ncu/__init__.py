"""Read what Nsight Compute measured."""
