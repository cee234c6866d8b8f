"""Cells on the machines of a Ray cluster: files travel to them once, results come back checked."""
