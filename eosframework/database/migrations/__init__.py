"""Revisions of the schema `eosframework`; `eosframework.database.migrating` applies them."""
