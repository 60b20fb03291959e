"""Calls of coroutines ahead of a transaction: their records, their event loop and their limits.

Owns the one thread next to the main thread that runs the user's code (ADR 35). What runs on it
touches calls and resources, never a task, a store, a producer or a consumer.
"""
