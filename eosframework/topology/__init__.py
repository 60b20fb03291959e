"""What to run: a topology as data (`spec`), how users write it, and what it compiles to.

Pure: nothing here talks to a broker or processes a record. It refuses a topology that does
not hold together, with every finding at once and the place of each.
"""
