"""What brokers know about transactions: read from them, explained, and ended where they hang.

confluent_kafka has none of these requests, so this package alone speaks through kafka-python. It
refuses to judge what the cluster does not let it see, and to end a transaction that it can tell
is healthy.
"""
