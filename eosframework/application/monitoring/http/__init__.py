"""The HTTP server of workers, relays and the console, and the pages of workers and relays.

Requests never wait for the main thread. The pages here change nothing and answer for this process
only: probes, metrics, status and the contents of stores. waitress is the server, with bounds for
whole requests (`http_server`).
"""
