"""Models: from the shapes of a language model to the operations of one decode step or prefill, their times, and what
follows from them. The lists (`models.json`, `steps.toml`, `configs.toml`) are data; they alone name operations.
"""
