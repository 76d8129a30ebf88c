"""Benchmarks: Holdfast beside its peers and beside what the disk and SQLite allow.

`python -m bench` runs them all. How they are measured, and what came out, is in docs/benchmarks.md.
"""
