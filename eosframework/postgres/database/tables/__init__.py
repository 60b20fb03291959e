"""Tables of table sinks: their definitions, rows and positions."""
