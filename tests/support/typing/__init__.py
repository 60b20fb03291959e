"""Programs that type checkers read."""
