"""How things look: tables on a terminal, figures, papers. Knows nothing of suites or runs."""
