"""The index of a history: what run folders hold, kept in one file that can be made again from them at any time."""
