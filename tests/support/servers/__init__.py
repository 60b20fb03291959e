"""Servers and clusters that tests start: brokers, databases, registries, engines, Prometheus."""
