"""Transactional producers: one per transactional.id, recycled when suspect."""
