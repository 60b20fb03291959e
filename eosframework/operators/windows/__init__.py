"""Windows of event time: their entries in a store, and when they close."""
