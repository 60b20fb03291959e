"""Windows, aggregates and joins compared with those of Kafka Streams, record by record.

The same flights run through four applications in Kafka Streams (java/) and in this framework
(ours.py), each on one partition, where the order of records is defined. Outputs are compared per
key and window. Every accepted difference is a rule (rules.py) with a source, and a rule that never
applies fails the test.
"""
