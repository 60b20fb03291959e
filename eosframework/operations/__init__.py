"""Commands on a running or stopped application: audit, doctor, dead letters."""
