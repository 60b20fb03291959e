"""Cutover: live workers continue at the offsets where a job ended."""
