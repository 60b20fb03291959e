from __future__ import annotations

import eosframework


def test_the_public_names_are_sorted_and_there() -> None:
    names = eosframework.__all__
    assert names == sorted(names, key=lambda name: (name[0].islower(), name))
    assert all(hasattr(eosframework, name) for name in names)


def test_the_public_names_are_those_promised() -> None:
    assert set(eosframework.__all__) == {
        "EosError",
        "InstanceFenced",
        "Record",
        "RunError",
        "Serde",
        "Stream",
        "Topology",
        "TransactionError",
        "UserError",
        "WindowResult",
        "avro",
        "dead_letter",
        "hopping",
        "json_schema",
        "protobuf",
        "serde_of",
        "session",
        "sliding",
        "tumbling",
    }
