"""One module and one .sql file for each revision."""
