"""A task: its records, stores and time, from the first record of a transaction to its outcome."""
