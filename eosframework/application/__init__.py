"""An application on a cluster: its topics, entries, ids and positions, and what is built of them.

Owns the checks before a start and the state that an application keeps (control topic, positions,
internal topics, ACLs). `composition/` builds workers, table writers and relays from settings and a
topology; `monitoring/` shows a process from outside.

Internal: no module here is public.
"""
