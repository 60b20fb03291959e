"""Values at the bounds of their types, and what is expected of them at each border."""
