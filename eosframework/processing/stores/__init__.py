"""A worker's stores: opening, restoration, standby copies, reads by other threads."""
