"""The flights demo: real data through a declared topology while its workers are killed.

Its topology is the one in `examples/flights`, which the wheel carries as
`eosframework/demo/flights`: there is one copy, and it is what a user would write.
"""
