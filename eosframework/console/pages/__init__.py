"""The pages: each a function from a request's fields to a template with its values.

Internal: no module here is public.
"""
