"""Recorded ownership: the topic that lists which transactional ids may write for a partition."""
