"""The HTTP server of a process, read-only: probes, metrics, status and the contents of stores.

The package contains the server, its addresses and its pages. Requests never wait for the main
thread, change nothing, and are answered for this process only. h11 parses HTTP. The loop around it
(`connections`) is our own: other servers limit the time between two bytes of a client, but not the
total time of a request, and a probe must be answered even if there are many slow clients.
"""
