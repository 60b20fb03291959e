"""Ports that are promised to one server are not given to another."""

from __future__ import annotations

import random

from eosframework.embedded.data_directory import free_ports


def test_a_port_that_is_promised_is_not_chosen_again() -> None:
    promised = range(15_000, 31_900)
    chosen = free_ports(10, besides=promised)
    assert len(set(chosen)) == 10
    assert not set(chosen) & set(promised)


def test_programs_with_the_same_seed_choose_different_ports() -> None:
    random.seed(7)
    first = free_ports(10)
    random.seed(7)
    assert free_ports(10) != first
