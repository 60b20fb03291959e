"""Code generation: a source and the steps after it become one Python function."""
