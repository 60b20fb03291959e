"""A backfill job: its entry in the control topic, its ranges, stages and progress."""
