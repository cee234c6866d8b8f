"""A run: measures on the networks of a suite, planned, executed, and what came of it."""
