"""Revisions of the schema `eosframework`; `postgres.database.migration` applies them."""
