"""Records that fail: policies, dead letters, retries, late records."""
