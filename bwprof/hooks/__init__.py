"""Hooks for running programs."""
