"""Cells of work, computed in guarded processes and stored once."""
