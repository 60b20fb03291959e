"""The demo of a backfill: an archive by Spark and the rest live, beside a world where all is live.

Owns the archive, the two worlds that are compared, and what is killed on the way. Refuses to know
how a backfill works: it runs the commands that users run, and reads what they leave.
"""
