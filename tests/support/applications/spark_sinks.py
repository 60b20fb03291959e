"""A topic that sinks of Spark write numbers to, and files from which a query makes its batches."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eosframework.application.control_topic import ControlTopic
from eosframework.application.journal import KafkaJournal
from eosframework.config import BackfillSettings, KafkaSettings, Settings, WorkerSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.spark import kafka_sink
from eosframework.spark.sinks.sink_api import Sink
from eosframework.spark.sinks.sink_entry import ShardProgress, shards_prefix
from tests.support.applications.pipeline import read_committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SinkWorld:
    """A topic, the sinks that write to it, and a directory of JSON files as a source."""

    def __init__(
        self, spark: SparkSession, servers: str, name: str, directory: Path, *, create: bool = True
    ) -> None:
        self.spark = spark
        self.servers = servers
        self.name = name
        self.topic = f"{name}.out"
        self.source = directory / "source"
        self.checkpoint = directory / "checkpoint"
        self._fed_at = time.time() - 10_000
        self.source.mkdir(exist_ok=True)
        self.sinks: list[Sink] = []
        if create:
            self.create(self.topic)

    def sink(self, **options: Any) -> Sink:
        given: dict[str, Any] = {"key": "key", "name": "out", "shards": 3}
        chunk_records = options.pop("chunk_records", 100)
        receipts = options.pop("receipts", False)
        topic = options.pop("topic", None if "topic_column" in options else self.topic)
        made = kafka_sink(
            topic,
            application=self.name,
            settings=Settings(
                kafka=KafkaSettings(bootstrap_servers=self.servers),
                worker=WorkerSettings(receipts=receipts),
                backfill=BackfillSettings(
                    commit_interval_seconds=0.3, stall_seconds=1, chunk_records=chunk_records
                ),
            ),
            **{**given, **options},
        )
        self.sinks.append(made)
        return made

    def shards(self, sink: str = "out") -> dict[str, ShardProgress]:
        """The decided progress of each shard, by its key."""
        settings = KafkaSettings(bootstrap_servers=self.servers)
        journal = KafkaJournal(self.name, settings, ClusterAdmin(settings))
        found = journal.decided_under(shards_prefix(sink))
        return {key: ShardProgress.from_entry(entry) for key, entry in found.items()}

    def staged(self) -> int:
        """The sequence of the last batch that had a stage, and attempts at its shards."""
        return max(progress.sequence for progress in self.shards().values())

    def writing(self) -> int | None:
        """The process of an attempt that has written a part of its shard; None: there is none."""
        for progress in self.shards().values():
            if progress.rows > 0 and not progress.complete and not progress.ended:
                return int(progress.attempt.split("/")[1])
        return None

    def stop(self) -> None:
        """Release the sinks."""
        for sink in self.sinks:
            sink.close()

    def record(self, entries: dict[str, Any]) -> None:
        """Write entries of the control topic, as another part of the framework would."""
        settings = KafkaSettings(bootstrap_servers=self.servers)
        control = ControlTopic(self.name, settings, ClusterAdmin(settings), replication_factor=1)
        control.ensure()
        control.write(entries)

    def read(self, topic: str) -> list[Any]:
        return read_committed(self.servers, topic)

    def create(self, topic: str, values: Mapping[str, str] | None = None) -> None:
        admin = ClusterAdmin(KafkaSettings(bootstrap_servers=self.servers))
        admin.create_topics([TopicToCreate(topic, 3, 1, values)])

    def feed(self, first: int, last: int) -> None:
        """Add numbers as a file that makes one batch; Spark takes files in the order of times."""
        rows = "".join(json.dumps({"n": n, "key": f"k{n % 7}"}) + "\n" for n in range(first, last))
        hidden = self.source / f".{first}"
        hidden.write_text(rows)
        self._fed_at += 1
        os.utime(hidden, (self._fed_at, self._fed_at))
        hidden.rename(self.source / f"{first:06}.json")

    def rows(self) -> DataFrame:
        stream = self.spark.readStream.schema("n bigint, key string")
        return stream.option("maxFilesPerTrigger", 1).json(str(self.source))

    def run(self, sink: Any, rows: DataFrame | None = None) -> None:
        """Run a query over all batches that there are."""
        query = (
            (self.rows() if rows is None else rows)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def counts(self) -> Counter[int]:
        """How often each number is in the topic."""
        return Counter(
            json.loads(m.value() or b"")["n"] for m in read_committed(self.servers, self.topic)
        )
