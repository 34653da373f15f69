"""Roofs: how fast plain streams move memory on a device, by the mix of reads and writes and by size.

Four streams are measured over their bytes. A row is compared with a stream of its own mix and size: between mixes, the
time per byte is linear in the read fraction; between sizes, the time is linear in the bytes. Roofs are stored in the
user's cache folder, and a few points are checked at every use.
"""
