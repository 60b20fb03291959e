"""Writing in transactions: one producer per transactional.id, recycled when suspect."""
