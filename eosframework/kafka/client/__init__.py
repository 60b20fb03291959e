"""librdkafka clients: properties, callbacks, statistics, and threads for blocking calls."""
