"""Generated documents: the reference of the API and the bill of materials."""
