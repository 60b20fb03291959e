"""The engine of a worker: from consumed records to outputs, state and the next offsets.

Owns the order of steps by which each record takes effect exactly once: taking partitions over,
running records, committing them, and giving partitions up. Each folder imports only those below
it: `worker/`, `restoration/`, `task/`, `codegen/`, `failures/`, `stores/`, `operators/`.

Internal: no module here is public.
"""
