"""One transaction of a producer group: from its first record to its outcome."""
