"""Client of a schema registry, and codecs bound to its schemas."""
