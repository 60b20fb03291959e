"""Lint: every problem of a topology at once, each with its place."""
