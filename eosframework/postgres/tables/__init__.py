"""The tables that table sinks write: their definitions, rows and positions."""
