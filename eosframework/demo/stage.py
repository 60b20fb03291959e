"""The common ground of the demos: a real broker in its own directory, and an orderly stop."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from eosframework.config import KafkaSettings
from eosframework.demo.stopping import Stopping
from eosframework.demo.story import Story
from eosframework.embedded import KafkaCluster, start_kafka
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate

PARTITIONS = 4

BROKER = {
    "log.retention.ms": "-1",
    "log.roll.ms": str(2**62),
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "8",
}
"""- log.retention.ms, log.roll.ms: the flights are of 2013, older than any retention.
- the internal topics: few partitions are made quickly."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The environment of a demo.

    Args:
        directory: of data and logs.
        keep: servers outlive the demo.
        stopping: set by SIGINT and SIGTERM.
        cleanup: actions at the end, last first.
    """

    story: Story
    directory: Path
    keep: bool
    cluster: KafkaCluster
    stopping: Stopping
    cleanup: ExitStack

    @property
    def settings(self) -> KafkaSettings:
        """Connection to the broker."""
        return KafkaSettings(bootstrap_servers=self.cluster.bootstrap_servers)

    def start_kafka(self, name: str) -> KafkaCluster:
        """Start another broker, with the lifetime of the first.

        Raises:
            ComponentFailed: it did not start.
        """
        return _start_kafka(self.directory / name, self.story, self.cleanup, keep=self.keep)

    def create_topics(self, topics: list[str]) -> None:
        """Create topics, and report it."""
        wanted = [TopicToCreate(topic, PARTITIONS) for topic in topics]
        ClusterAdmin(self.settings).create_topics(wanted)
        self.story.say(f"topics with {PARTITIONS} partitions each: {', '.join(topics)}")


@contextmanager
def open_stage(story: Story, title: str, *, keep: bool) -> Generator[Stage]:
    """Start a broker for the block; afterwards no process is left running, whatever the outcome.

    Args:
        story: output of the demo.
        title: of the demo.
        keep: leave the broker running, and print the command that stops it.

    Raises:
        ComponentFailed: the broker did not start.
        KeyboardInterrupt: SIGINT or SIGTERM came; everything has been stopped.
    """
    try:
        stopping = Stopping()
        with stopping.watched(), ExitStack() as cleanup:
            directory = _directory(cleanup, keep=keep)
            story.title(title)
            cluster = _start_kafka(directory / "kafka", story, cleanup, keep=keep)
            stopping.check()
            yield Stage(story, directory, keep, cluster, stopping, cleanup)
    except KeyboardInterrupt:
        story.say("stopped before the end; the workers are gone")
        raise


def _start_kafka(place: Path, story: Story, cleanup: ExitStack, *, keep: bool) -> KafkaCluster:
    cluster = start_kafka(place, properties=BROKER, fast_start=True, detached=keep)
    if keep:
        cleanup.callback(_say_how_to_go_on, story, cluster)
    else:
        cleanup.callback(cluster.kill)
    story.say(f"Kafka is up at {cluster.bootstrap_servers}")
    return cluster


def _directory(cleanup: ExitStack, *, keep: bool) -> Path:
    if keep:
        return Path(tempfile.mkdtemp(prefix="eos-demo-"))
    return Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="eos-demo-")))


def _say_how_to_go_on(story: Story, cluster: KafkaCluster) -> None:
    story.plain(f"the broker stays up at {cluster.bootstrap_servers}; stop it with")
    story.plain(f"  eosframework broker down --data-dir {cluster.data_dir}")
