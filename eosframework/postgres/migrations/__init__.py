"""Revisions of the schema `eosframework`; `eosframework.postgres.migration` applies them."""
