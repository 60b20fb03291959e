"""Admin requests: topics, groups, offsets, ACLs, and the brokers' settings."""
