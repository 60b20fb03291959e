"""The demos: real data through declared topologies while processes are killed.

`flights_demo`, `transfer_demo`, `backfill_demo` and `sink_demo` run on one `stage`. Their
topologies are `examples/flights` and `examples/transfer`, which the wheel contains as
`eosframework/demo/flights` and `eosframework/demo/transfer`: one copy, as a user would write it.

Internal: no module here is public.
"""
