"""Measurements: each `bench_*.py` prints ratios taken in one run. Nothing here decides whether a test passes."""
