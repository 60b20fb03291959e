"""Queries of stores: decoded keys and values, independent of a store's layout on disk.

The package finds and decodes the entries of each kind of store, and parses keys from a command line
or a URL. It is given the store's content, which it only reads.
"""
