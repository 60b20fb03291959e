"""Declaring a topology in Python: streams, their operators, windows and stores."""
