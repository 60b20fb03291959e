"""The only part that talks to Kafka: producers, consumers, the classifier, registry and admin.

It refuses to decide what a topology means, and to hide an error: every one is classified.
"""
