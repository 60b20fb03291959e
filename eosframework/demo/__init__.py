"""The demos: real data and real money through declared topologies while all of it is killed.

`run` is the flights demo, `banks` the transfer demo. What they run is in `examples/flights` and
`examples/transfer`, which the wheel carries as `eosframework/demo/flights` and
`eosframework/demo/transfer`: there is one copy, and it is what a user would write.
"""
