"""The transfer demo: money goes round between two banks while everything around it is killed.

Here are those who ask for transfers (`tellers`), those who are killed (`bank`), and two judges that
know nothing of how transfers travel: the `examiner`, who looks at both banks' books all the time,
and the `verdict` over the ledgers in the end.
"""
