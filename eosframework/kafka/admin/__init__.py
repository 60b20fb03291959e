"""Admin requests: topics, groups, offsets, ACLs and broker settings."""
