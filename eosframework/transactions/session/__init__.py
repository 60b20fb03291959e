"""A transaction from its begin to its outcome, for one transactional id or several.

It knows the ports of the producers; what is processed, and where progress is stored, is its user's.
"""
