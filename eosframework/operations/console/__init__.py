"""The console: pages in a browser about one application, served by a process of its own.

Owns the pages, their access (token, sessions, forms) and a short memory of what it has read, for
rates and takeovers. It computes nothing that a command computes: `readings` call the same
functions, so a page says what `--json` says. Workers serve no pages, and lose nothing when the
console ends.

Internal: no module here is public.
"""
