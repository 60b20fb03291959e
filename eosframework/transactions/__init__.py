"""Writing exactly once: who may write, and a transaction from its begin to its outcome.

Owns the ports to Kafka (`ports`), the recorded ids of workers (`ownership`), the session of a
transactional id (`session/`) and the attempts of a task that may run twice (`task_attempts`). It
never interprets a broker's error code: `kafka/` does. What is processed is its users'.

Internal: no module here is public.
"""
