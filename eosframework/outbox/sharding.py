"""Which shard a message belongs to: messages of one key always share one.

The database writes the lane beside each row, so that the number of shards is the relay's affair
alone: shard = lane modulo shards.
"""

from __future__ import annotations

from hashlib import sha256

LANES = 256
MOST_SHARDS = 64


def lane_of(key: bytes | None, number: int) -> int:
    """Return the lane of a key, from 0; messages without one are spread by their number.

    The SQL in the migrations says the same.
    """
    if key is None:
        return number % LANES
    return sha256(key).digest()[0]


def shard_of(lane: int, shards: int) -> int:
    """Return the shard of a lane, from 0."""
    return lane % shards


def fair_share(shards: int, relays: int) -> int:
    """Return how many shards one of several relays runs at most."""
    return -(-shards // max(relays, 1))
