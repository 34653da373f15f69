"""Times of shapes and devices that were not measured: a catalogue of cards, and what measured rows teach."""
