"""Read-only probes of brokers: their clock, versions and permissions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from eosframework.kafka.inspect.coordinators import coordinator_of
from eosframework.kafka.inspect.vendor import (
    admin_protocol,
    errors,
    metadata_protocol,
    producer_protocol,
)
from eosframework.kafka.inspect.wire import Wire

LOOKS_AT_THE_CLOCK = 3

UNUSED_PRODUCER_ID = 1 << 62
"""An unused id: brokers assign producer ids from 0 upwards, in blocks of 1000."""

_ALLOWED = (
    errors.InvalidProducerIdMappingError.errno,
    errors.InvalidProducerEpochError.errno,
    errors.InvalidTxnStateError.errno,
)


@dataclass(frozen=True, slots=True)
class Clock:
    """Offset of the controller's clock from this host's.

    Args:
        ahead: of this host's clock; negative: it is late.
        uncertainty: half of the request's duration.
    """

    ahead: timedelta
    uncertainty: timedelta


def controller_clock(wire: Wire) -> Clock:
    """Return the offset of the active controller's clock from this host's.

    The leader of the metadata quorum reports its own time as the time at which it was caught up
    (KIP-836); no other response reports a broker's time without a write.
    """

    def look() -> Clock:
        sent = time.time()
        answer = wire.send(_quorum_request())
        received = time.time()
        if answer.error_code:
            raise errors.for_code(answer.error_code)()
        ((partition,),) = (topic.partitions for topic in answer.topics)
        if partition.error_code:
            raise errors.for_code(partition.error_code)()
        (theirs,) = (
            voter.last_caught_up_timestamp
            for voter in partition.current_voters
            if voter.replica_id == partition.leader_id
        )
        return Clock(
            ahead=timedelta(seconds=theirs / 1000 - (sent + received) / 2),
            uncertainty=timedelta(seconds=(received - sent) / 2),
        )

    looks = [
        wire.call("asking for the controller's clock", "Describe on the cluster", look)
        for _ in range(LOOKS_AT_THE_CLOCK)
    ]
    return min(looks, key=lambda clock: clock.uncertainty)


@dataclass(frozen=True, slots=True)
class MetadataLevels:
    """The levels of a cluster's feature metadata.version (KIP-584).

    Args:
        supported: the highest one that each broker's software supports.
        finalized: the one in use.
    """

    supported: Mapping[int, int]
    finalized: int


def metadata_levels(wire: Wire) -> MetadataLevels:
    """Return the levels of metadata.version, supported and in use."""
    request = metadata_protocol.ApiVersionsRequest(
        client_software_name="eosframework", client_software_version="0", max_version=3
    )

    def ask() -> MetadataLevels:
        answers = {broker: wire.send(request, broker) for broker in wire.brokers()}
        supported = {
            broker: feature.max_version
            for broker, answer in answers.items()
            for feature in answer.supported_features
            if feature.name == "metadata.version"
        }
        finalized = [
            feature.max_version_level
            for answer in answers.values()
            for feature in answer.finalized_features
            if feature.name == "metadata.version"
        ]
        return MetadataLevels(supported, min(finalized, default=0))

    return wire.call("asking brokers for their versions", "nothing", ask)


def missing_operation(wire: Wire, transactional_id: str) -> str:
    """Return the operation that this principal lacks on an id; empty: it may write under it.

    Requests the end of a transaction of a producer that does not exist. A broker checks the
    permission first and the producer next, so that no transaction ends and no producer is fenced.
    """

    def ask() -> str:
        try:
            coordinator_id = coordinator_of(wire, transactional_id)
        except errors.TransactionalIdAuthorizationFailedError:
            return "Describe"
        request = producer_protocol.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=UNUSED_PRODUCER_ID,
            producer_epoch=0,
            committed=False,
            max_version=3,
        )
        code = wire.send(request, coordinator_id).error_code
        if code == errors.TransactionalIdAuthorizationFailedError.errno:
            return "Write"
        if code in _ALLOWED:
            return ""
        raise errors.for_code(code)()

    return wire.call(f"probing {transactional_id!r}", "Describe on it", ask)


def _quorum_request() -> object:
    topic = admin_protocol.DescribeQuorumRequest.TopicData
    partitions = [topic.PartitionData(partition_index=0)]
    topics = [topic(topic_name="__cluster_metadata", partitions=partitions)]
    return admin_protocol.DescribeQuorumRequest(topics=topics, min_version=1)
