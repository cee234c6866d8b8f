"""What plugins hand to genbench, the hooks they do it through, and the registry of all they offer."""
