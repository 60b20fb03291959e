"""The operating-system process: supervisor, forks, signals, watchdog, instance names, logs.

Internal: no module here is public.
"""
