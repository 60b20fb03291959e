"""Metrics for Prometheus, readiness and task status, derived from snapshots of a process.

Each metric is declared once, with its normal values and the next step if they differ. The main
thread makes the snapshots, and reading them never blocks it. No metric has a label with an
unbounded number of values, so there are no metrics by partition, task or key; `/status` has those.
"""
