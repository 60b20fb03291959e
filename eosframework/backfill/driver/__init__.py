"""The driver of a backfill: starts a job, runs its stages, ends leftovers."""
