"""The schema registry's client, and codecs bound to its schemas."""
