"""Every check finds what it is for in a made-up cluster, and nothing in a healthy one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eosframework.cli.doctor import SHOWN, _print, blocks, markdown
from eosframework.config import KafkaSettings, Settings
from eosframework.kafka.inspect.coordinators import TransactionListing
from eosframework.kafka.inspect.formats import TxnState
from eosframework.operations.doctor import CHECKS, Finding, Severity, examination, examine
from eosframework.operations.doctor.findings import Seen, Unseen
from eosframework.operations.doctor.snapshot import Snapshot
from eosframework.txnid import TransactionalId
from tests.unit.operations.doctor.case import Case
from tests.unit.operations.doctor.cases import CASES
from tests.unit.operations.doctor.made_up import (
    BROKER_VALUES,
    FEW,
    VERIFY,
    on_one_broker,
    snapshot,
    topic,
    with_brokers,
    with_tables,
    with_topic,
    with_worker,
)


def findings_of(found: Snapshot, check: str) -> list[Finding]:
    return [finding for finding in examine(found).findings if finding.check == check]


def test_nothing_is_found_in_a_healthy_cluster_but_what_cannot_be_seen() -> None:
    assert [finding.check for finding in examine(snapshot()).findings] == ["readers"]
    assert [finding.check for finding in examine(with_tables()).findings] == ["readers"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.severity}")
def test_a_check_finds_what_is_amiss_and_says_what_mends_it(case: Case) -> None:
    (finding,) = findings_of(case.cluster(), case.check)
    assert finding.severity is case.severity
    assert case.found in finding.found
    assert case.fix in finding.fix
    assert all((finding.about, finding.expected, finding.why))


def test_every_check_is_shown_to_find_something() -> None:
    assert {check.id for check in CHECKS} == {case.check for case in CASES}
    assert {check.id for check in CHECKS} == {*examination._JUDGES}


def test_a_leased_id_is_the_applications_own_whatever_its_form() -> None:
    lease = TransactionalId("shop", "big", 0, "shop:Other")
    own = TransactionListing("shop:Other", TxnState.EMPTY, 7, 1, lease)
    assert not findings_of(snapshot(ids=Seen((own,))), "foreign-ids")


def test_only_an_error_makes_an_application_unhealthy() -> None:
    for case in CASES:
        report = examine(case.cluster())
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
        assert report.healthy == (not errors)
        assert list(report.findings) == sorted(
            report.findings, key=lambda finding: list(Severity).index(finding.severity)
        )


def test_brokers_of_the_same_value_are_one_finding() -> None:
    (finding,) = findings_of(with_brokers(offsets_retention_minutes="60"), "offsets-retention")
    assert finding.about == "broker 1, broker 2, broker 3"


def test_a_cluster_of_one_broker_is_one_finding_however_many_topics_it_has() -> None:
    found = examine(on_one_broker("orders", "large")).findings
    of_replicas = [finding.check for finding in found if "replica" in finding.found]
    assert of_replicas == ["one-broker"]


def test_a_topic_with_a_replica_elsewhere_is_on_more_than_one_broker() -> None:
    alone = on_one_broker("orders")
    with_another = replace(alone, topics={**alone.topics, "large": Seen(topic())})
    assert findings_of(with_another, "one-broker") == []
    assert findings_of(with_another, "topic-replicas") != []


def test_findings_of_one_check_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    few = {f"in-{number}": Seen(FEW) for number in range(9)}
    report = examine(snapshot(topics={**snapshot().topics, **few}))
    (block,) = (b for b in blocks(report.findings) if b[0].check == "topic-replicas")
    assert len(block) == len(few)
    _print(report, "shop.yaml")
    printed = capsys.readouterr().out
    assert printed.count("three replicas of each input") == 1
    assert printed.count("kafka-reassign-partitions.sh") == SHOWN
    assert f"and {len(few) - SHOWN} objects like these; --json prints them all" in printed


def test_a_command_to_copy_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    report = examine(with_topic("large", FEW))
    (finding,) = (f for f in report.findings if f.check == "topic-replicas")
    _print(report, "shop.yaml")
    assert f"  -> {finding.fix}\n" in capsys.readouterr().out


def test_brokers_that_do_not_tell_whether_they_verify_are_an_error_unless_assumed() -> None:
    unseen = Seen(Unseen("settings of the brokers", "grant DescribeConfigs"))
    (finding,) = findings_of(snapshot(brokers=unseen), "transaction-verification")
    assert finding.severity is Severity.ERROR
    assumed = snapshot(
        Settings(kafka=KafkaSettings(assume_transaction_verification=True)), brokers=unseen
    )
    (finding,) = findings_of(assumed, "transaction-verification")
    assert finding.severity is Severity.WARNING
    (not_checked,) = findings_of(assumed, "not-checked")
    assert "offsets-retention" in not_checked.found


def test_a_broker_that_does_not_tell_hides_no_other_that_is_wrong() -> None:
    unseen = Seen(Unseen("settings of the brokers", "broker 2 did not tell"))
    old = {**BROKER_VALUES, "inter.broker.protocol.version": "3.9-IV0"}
    assumed = Settings(kafka=KafkaSettings(assume_transaction_verification=True))
    mixed = snapshot(assumed, brokers=unseen, some_brokers={1: BROKER_VALUES, 3: old})
    wrong, unread = findings_of(mixed, "transaction-verification")
    assert (wrong.about, wrong.severity) == ("broker 3", Severity.ERROR)
    assert "3.9-IV0" in wrong.found
    assert unread.severity is Severity.WARNING


def test_at_least_once_needs_neither_verification_nor_transactional_ids() -> None:
    found = replace(
        with_worker(guarantee="at_least_once"),
        brokers=with_brokers(**{VERIFY: "false"}).brokers,
        lacking={"shop:big:0": Seen("Write")},
    )
    assert examine(found).healthy


def test_a_topic_that_may_not_be_described_is_a_finding() -> None:
    hidden = with_topic("large", Unseen("topic large", "grant Describe on topic 'large'"))
    (finding,) = findings_of(hidden, "not-checked")
    assert (finding.about, finding.fix) == ("topic large", "grant Describe on topic 'large'")


def test_what_was_found_before_a_part_that_was_not_seen_is_kept() -> None:
    found = snapshot(
        lacking={
            "shop:a:0": Seen("Write"),
            "shop:b:0": Seen(Unseen("permissions on shop:b:0", "no answer")),
        }
    )
    assert len(findings_of(found, "transactional-id-acls")) == 1
    assert len(findings_of(found, "not-checked")) == 1


def test_the_page_of_the_checks_is_the_table() -> None:
    page = Path(__file__).parents[4] / "docs" / "reference" / "doctor.md"
    assert page.read_text(encoding="utf-8") == markdown()
