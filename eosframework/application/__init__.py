"""Data that an application owns on a cluster: control topic, start checks, positions, reset."""
