"""Faults that tests bring about: proxies, hanging transactions, late requests."""
