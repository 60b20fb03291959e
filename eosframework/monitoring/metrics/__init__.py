"""What a process tells about itself: metrics for Prometheus, why it is not ready, its tasks.

It owns the metrics, each declared once with what is normal and what to do, and the judgement of
views that the main thread makes. It refuses to count anything itself, to make threads that run
records wait, and labels whose number grows with the data: metrics know no partitions, tasks or keys
(`/status` does).
"""
