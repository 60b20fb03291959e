"""Edits of a program that has run: what it keeps stays with the step that wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eosframework.txnid import changelog_topic
from tests.support.applications.edited import Program

CENTS = 'orders.group_by(user, key=str).sum(cents).to("NAME.cents", value="json")\n'
ITEMS = 'orders.group_by(user, key=str).sum(items).to("NAME.items", value="json")\n'
PROGRAM = """\
from eosframework import Topology


def user(record):
    return record.value["user"]


def cents(order):
    return order["cents"]


def items(order):
    return order["items"]


app = Topology("NAME")
orders = app.stream("NAME.in", name="orders", key=str, value="json")
"""
WORDS = """\
from eosframework import Topology


def words(line):
    return line.split()


def word(record):
    return record.value


app = Topology("NAME")
lines = app.stream("NAME.in", name="lines", key="string", value="string")
by_word = lines.flat_map_values(words).group_by(word, key="string")
by_word.count().to("NAME.counts", value="json")
"""


@pytest.fixture
def program(kafka: Any, unique_name: Callable[[str], str], tmp_path: Path) -> Program:
    return Program(kafka, unique_name("kept"), tmp_path)


ORDER = json.dumps({"user": "ann", "cents": 1000, "items": 1}).encode()


def test_a_line_above_another_takes_nothing_from_its_store(program: Program) -> None:
    program.write(PROGRAM + CENTS)
    assert program.do("apply", "shop.py").exit_code == 0
    program.produce(ORDER)
    assert program.run().exit_code == 0
    assert program.sent("cents") == {"ann": [1000]}

    program.write(PROGRAM + ITEMS + CENTS)
    found = program.do("lint", "shop.py", "--json").json
    assert [each["rule"] for each in found["findings"]] == ["ambiguous-name"] * 2
    assert program.run().exit_code == 2
    planned = program.do("plan", "shop.py")
    assert planned.exit_code == 1, planned.err
    assert planned.out.count("a worker would not start") == 3, planned.out
    assert 'to keep it, write store="orders.sum" in ' in planned.out
    fixed = program.do("lint", "shop.py", "--fix")
    assert fixed.exit_code == 0, fixed.err
    assert 'name="orders.items").sum(items)' in program.text

    assert program.do("apply", "shop.py").exit_code == 0
    planned = program.do("plan", "shop.py")
    refused = program.run()
    changelog = changelog_topic(program.name, "orders.sum")
    for message in (planned.out, refused.error):
        assert 'to keep it, write store="orders.sum" in ' in message
        assert 'and name="orders" in ' in message
        assert f"{changelog} has state" in message
    assert (planned.exit_code, refused.exit_code) == (1, 2)

    lines = program.text.replace('name="orders.cents").sum(cents)', 'name="orders").sum(cents)')
    program.write(lines.replace(".sum(cents)", '.sum(cents, store="orders.sum")'))
    program.produce(ORDER)
    done = program.do("apply", "shop.py")
    assert done.exit_code == 0, done.err
    done = program.run()
    assert done.exit_code == 0, done.err
    assert program.sent("cents") == {"ann": [1000, 2000]}
    assert program.sent("items") == {"ann": [1]}


def test_a_renamed_function_continues_with_its_counts(program: Program) -> None:
    program.write(WORDS)
    assert program.do("apply", "shop.py").exit_code == 0
    program.produce(b"to be or not to be")
    assert program.run().exit_code == 0
    first = program.sent("counts")
    assert first["be"] == [1, 2]

    program.write(WORDS.replace("words", "split_words"))
    program.produce(b"be")
    done = program.run()
    assert done.exit_code == 0, done.err
    assert program.sent("counts") == {**first, "be": [1, 2, 3]}

    program.write(WORDS.replace("word(", "the_word(").replace("group_by(word", "group_by(the_word"))
    refused = program.run()
    assert refused.exit_code == 2
    assert "key: shop:the_word, before shop:word" in refused.error
    assert "existing values were made by the old one" in refused.error
    planned = program.do("plan", "shop.py")
    assert planned.exit_code == 0, planned.out
    assert "confirm: store lines.count: key: shop:the_word, before shop:word" in planned.out
    applied = program.do("apply", "shop.py")
    assert applied.exit_code == 0
    meant = "recorded for store lines.count: key: shop:the_word, before shop:word"
    assert meant in applied.out
    program.produce(b"be")
    done = program.run()
    assert done.exit_code == 0, done.err
    assert program.sent("counts") == {**first, "be": [1, 2, 3, 4]}


def test_state_is_dropped_when_that_is_accepted_and_when_its_changelog_is_deleted(
    program: Program,
) -> None:
    program.write(PROGRAM + CENTS)
    assert program.do("apply", "shop.py").exit_code == 0
    program.produce(ORDER)
    assert program.run().exit_code == 0
    changelog = changelog_topic(program.name, "orders.sum")
    program.write(PROGRAM + CENTS.replace("sum(cents)", 'count(store="counted")'))
    assert program.do("apply", "shop.py").exit_code == 0
    assert f"{changelog} has state" in program.run().error
    accepted = program.do("apply", "shop.py", "--accept", changelog)
    assert accepted.exit_code == 0, accepted.err
    program.produce(ORDER)
    assert program.run().exit_code == 0

    program.write(PROGRAM + CENTS.replace("sum(cents)", 'count(store="other")'))
    assert program.do("apply", "shop.py").exit_code == 0
    assert "counted-changelog has state" in program.run().error
    program.delete(changelog_topic(program.name, "counted"))
    done = program.run()
    assert done.exit_code == 0, done.err
