"""What a process answers over HTTP, read-only: whether it works, and what its stores hold.

It owns the server, its addresses and its pages. It refuses to wait for the main thread, to change
anything, and to answer for other processes. The server is that of the standard library: a worker is
asked a few times a second by people, probes and scrapers, and one more thread per request costs
less than another dependency in every worker.
"""
