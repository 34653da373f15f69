"""The kinds of pictures, a file each."""
