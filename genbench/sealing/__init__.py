"""Sealed processes: the kernel keeps them from all but what they are given."""
