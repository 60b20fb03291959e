"""Observation of a process from outside: metrics, traces, HTTP pages."""
