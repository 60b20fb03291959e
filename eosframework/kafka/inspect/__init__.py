"""Inspection of the cluster's transactions, and ending those that hang.

confluent_kafka lacks these requests, so this package alone uses kafka-python. It refuses to judge a
transaction whose facts this principal may not see, and to end one that is healthy.
"""
