"""Assignment of messages to shards: messages with the same key are in the same shard.

The database stores a hash of the key with each row, 0 to 255. A message's shard is that number
modulo the number of shards, so only the relay needs to know how many shards there are.
"""

from __future__ import annotations

from hashlib import sha256

LANES = 256
MOST_SHARDS = 64


def lane_of(key: bytes | None, number: int) -> int:
    """Return the hash of a key, from 0; messages without a key are spread by their number.

    The SQL in the migrations must compute the same value.
    """
    if key is None:
        return number % LANES
    return sha256(key).digest()[0]


def shard_of(lane: int, shards: int) -> int:
    """Return the shard of a key's hash, from 0."""
    return lane % shards


def fair_share(shards: int, relays: int) -> int:
    """Return the largest number of shards that one of several relays runs."""
    return -(-shards // max(relays, 1))
