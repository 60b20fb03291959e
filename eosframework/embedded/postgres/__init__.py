"""A real PostgreSQL as a local process, started from the programs in a wheel.

Owns the programs, the account that runs them, the process and its data directory. One directory is
one server; it listens on 127.0.0.1 only, and every connection needs the password in its DSN.
"""

from __future__ import annotations

from eosframework.embedded.postgres.server import PostgresServer
from eosframework.embedded.postgres.start import find_postgres, start_postgres

__all__ = ["PostgresServer", "find_postgres", "start_postgres"]
