"""The programs of the contestants: each reads the input, stamps each record, writes it twice."""
