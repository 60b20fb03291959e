"""Commands on a running or stopped application: audit, doctor, dead letters.

Internal: no module here is public.
"""
