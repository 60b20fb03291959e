"""What a process answers over HTTP, read-only: whether it works, and what its stores hold.

It owns the server, its addresses and its pages. It refuses to wait for the main thread, to change
anything, and to answer for other processes. h11 reads and writes HTTP; the loop around it is ours
(`connections`), because servers of others bound how long a client may be silent, and neither how
long a request may take in total nor that a probe gets through.
"""
