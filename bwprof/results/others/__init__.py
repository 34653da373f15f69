"""What is no run: rows and times in formats of other programs, ladders."""
