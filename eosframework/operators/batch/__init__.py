"""Batch operators: JSON values to Arrow columns, the user's functions over them, and back to JSON.

Owns the step from the values of a slice of messages to each message's new value. It does not know
what follows: `on_error`, outputs and commits belong to the cycle. pyarrow is an extra; only this
package and backfill/ import it.
"""
