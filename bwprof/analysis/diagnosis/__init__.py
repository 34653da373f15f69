"""Why a kernel is slow: hypotheses, each held against the figures of a row, whoever measured it."""
