"""Text that people type and read: parsing, formatting, tables and documents."""
