"""Collections of a researcher's own trained networks, with what is known of them in a table."""
