"""Consumers of committed records, reads of log ranges, and group membership."""
