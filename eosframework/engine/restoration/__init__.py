"""State of tasks from its changelogs: restoration, standby copies, global tables."""
