"""Data sets: images with named classes, split into training and held-out parts."""
