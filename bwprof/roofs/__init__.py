"""Roofs: how fast plain streams move memory on a device, by read/write mix and by size.

The four streams are measured as a curve over the bytes they move. A case is then held against the stream of its own
mix and size: between the streams' mixes the time per byte is interpolated over the read fraction, between sizes the
time over the bytes. They are kept in the user's cache folder, and a few points are checked at every use.
"""
