"""Reading: consumers of committed records, ranges of logs, group membership."""
