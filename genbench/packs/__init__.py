"""Evidence packs: trained networks and what they did on held-out data, as files with hashes."""
