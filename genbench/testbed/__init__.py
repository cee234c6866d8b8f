"""The practical testbed of paper 004: adapted subjects, degraded images, the cube, the trade-off point."""
