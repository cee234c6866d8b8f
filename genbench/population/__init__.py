"""Populations of small networks trained from scratch over a grid of hyperparameters."""
