"""Pretrained networks over a wide range of sizes, behind one interface."""
