"""State that an application owns on a cluster: control topic, positions, internal topics, ACLs.

Internal: no module here is public.
"""
