"""What users may ask of a store: keys and values as they know them, whatever lies on disk.

It owns how the entries of each kind of store are found by key and shown, and how keys are written
on a command line or in a URL. It refuses to know where a store is, and changes nothing.
"""
