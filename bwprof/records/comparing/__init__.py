"""Two runs side by side: which cases became slower, by how much more than chance, and probably why."""
