"""Leaderboards: tables and a web site, made from result records and nothing else."""
