"""Observation of a process from outside: metrics, traces, HTTP pages.

Internal: no module here is public.
"""
