"""Comparison of a job's output with the live topics and tables."""
