"""The demo of sinks for Spark: a pipeline whose processes are killed, compared with pandas.

It runs examples/spark-pipeline as it is.
"""
