"""The table `eosframework.spark_sinks`: the last batch of each table sink of Spark."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from eosframework.errors import InstanceFenced
from eosframework.postgres.connection import Database, load_queries
from eosframework.postgres.error_classes import commit

_queries: Any = load_queries("spark_sinks.sql")


class OwnedSinkRow:
    """A sink that this driver owns, by an epoch that each driver increments.

    Args:
        database: with the schema.
        application: owner of the sink.
        sink: its name.

    Attributes:
        batch: the last batch, as JSON data; None: there was none.

    Raises:
        DatabaseUnusable: the database is unavailable.
    """

    def __init__(self, database: Database, application: str, sink: str) -> None:
        self._database = database
        self._application = application
        self._sink = sink
        doing = f"own sink {sink} in {database.display}"
        with database.session(doing) as connection:
            epoch, self.batch = _queries.own_sink(connection, application=application, sink=sink)
            commit(connection, doing)
        self._epoch = epoch

    def record(self, batch: Any) -> None:
        """Record the last batch.

        Raises:
            InstanceFenced: another driver owns the sink; nothing was recorded.
            DatabaseUnusable: it may or may not be recorded; own the sink again.
        """
        doing = f"record a batch of sink {self._sink} in {self._database.display}"
        with self._database.session(doing) as connection:
            epoch = _queries.record_batch(
                connection,
                application=self._application,
                sink=self._sink,
                epoch=self._epoch,
                batch=Jsonb(batch),
            )
            if epoch is None:
                raise InstanceFenced(
                    f"sink {self._sink!r} of application {self._application!r} was taken over by "
                    f"another driver, which continues it; this one ends, and wrote nothing more"
                )
            commit(connection, doing)
        self.batch = batch
