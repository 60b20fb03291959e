"""The backfill demo: an archive by Spark and the rest live, compared with live processing of all.

Owns the archive, the two worlds to compare, and the kills. It knows nothing of how a backfill
works: it runs a user's commands, and reads their results.
"""
