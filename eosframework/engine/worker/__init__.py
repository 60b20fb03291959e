"""A worker: its partitions, their takeover and release, its turns, commit rounds and recovery."""
