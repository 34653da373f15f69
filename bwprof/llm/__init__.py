"""Language models: the operations of a decode step or a prefill, their times, and what limits them.

`models.json`, `configs.toml` and `steps.toml` in `bwprof/data` are the only places that name operations.
"""
