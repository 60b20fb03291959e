"""The transfer demo: money circulates between two banks while their processes are killed.

`tellers` ask for transfers and `bank` has the processes that are killed. Two independent judges
know nothing of the way of a transfer: the `examiner` compares both banks' books all the time, and
`verdict` compares the ledgers at the end.
"""
