"""The programs that do the same work: each reads, doubles one field, writes, exactly-once.

A contestant is told its work in `BENCH_…` environment variables, so that programs in other
languages and environments are told in the same way.
"""
