"""The demos: real data through declared topologies while processes are killed.

`run` is the flights demo, `banks` the transfer demo, `history` the backfill demo. Their topologies
are `examples/flights` and `examples/transfer`, which the wheel contains as
`eosframework/demo/flights` and `eosframework/demo/transfer`: one copy, as a user would write it.
"""
