"""In-memory stand-ins with faults; tests/conformance holds them against the real systems."""
