"""The audit by receipts on a real broker: histories written by hand, whole and damaged."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from eosframework.errors import ConfigurationError, StartRefused
from eosframework.operations.audit import Proof, Verdict
from tests.support.applications.histories import START, Application


def faults(verdict: Verdict) -> dict[str, int]:
    return {k: n for k, n in verdict.counts().items() if n and k not in ("input", "output")}


def texts(application: Application, verdict: Verdict) -> list[str]:
    return [detail.text.replace(f"{application.name}.", "") for detail in verdict.details]


def test_receipts_judge_without_running_a_function(application: Application) -> None:
    application.feed(100)
    application.write(application.receipted(range(60), transaction=1), commit=60, transaction=1)
    application.write(application.receipted(range(60, 80), transaction=2), abort=True)
    application.write(
        application.receipted(range(60, 100), transaction=2), commit=100, transaction=2
    )
    text = application.topology.read_text()
    application.topology.write_text(text.replace(":double", ":refuse_all"))
    verdict = application.audit()
    assert verdict.clean, verdict
    assert (verdict.input, verdict.output) == (100, 200)
    assert not application.audit(proof=Proof.FUNCTIONS).clean


def test_functions_judge_outputs_with_receipts_as_well(application: Application) -> None:
    application.feed(100)
    application.write(application.receipted(range(100), transaction=1), commit=100, transaction=1)
    verdict = application.audit(proof=Proof.FUNCTIONS)
    assert verdict.clean, verdict
    assert (verdict.input, verdict.output) == (100, 200)


def test_half_of_a_records_outputs_is_lost_and_the_record_torn(application: Application) -> None:
    application.feed(100)
    outputs = application.receipted(range(100), transaction=1)
    application.write(outputs[:51] + outputs[52:], commit=100, transaction=1)
    verdict = application.audit()
    assert faults(verdict) == {"lost": 1, "torn": 1}
    assert texts(application, verdict) == [
        "output 2 of 2 of in[1]@12 is not there",
        "in[1]@12: only a part of its outputs is there",
    ]


def test_a_lost_transaction_is_named_with_its_first_and_last_input(
    application: Application,
) -> None:
    application.feed(100)
    for transaction, numbers in enumerate((range(40), range(40, 60), range(60, 100)), start=1):
        outputs = application.receipted(numbers, transaction=transaction)
        application.write(
            [] if transaction == 2 else outputs, commit=numbers.stop, transaction=transaction
        )
    verdict = application.audit()
    assert faults(verdict) == {"lost": 40}
    assert texts(application, verdict) == [
        f"20 outputs of input records from in[{p}]@20 to in[{p}]@29 are not there; "
        f"there is nothing of transaction 2"
        for p in (0, 1)
    ]


def test_a_doubled_transaction_is_named_with_its_first_and_last_input(
    application: Application,
) -> None:
    application.feed(60)
    application.write(application.receipted(range(40), transaction=1), commit=40, transaction=1)
    again = application.receipted(range(40, 60), transaction=2)
    application.write(again, commit=60, transaction=2)
    application.write(again)
    verdict = application.audit()
    assert faults(verdict) == {"duplicated": 40}
    assert [text.partition(", from")[0] for text in texts(application, verdict)] == [
        f"all 20 outputs of in[{p}]@20 to in[{p}]@29 are there again: the whole of transaction 2"
        for p in (0, 1)
    ]


def test_outputs_in_another_order_are_named_with_their_places(application: Application) -> None:
    application.feed(20)
    numbers = [*range(10), 12, 11, 10, *range(13, 20)]
    application.write(application.receipted(numbers, transaction=1), commit=20, transaction=1)
    verdict = application.audit()
    assert faults(verdict) == {"reordered": 2}
    assert sorted(texts(application, verdict)) == [
        f"{topic}[0]@6, an output of in[0]@5, comes after an output of in[0]@6"
        for topic in ("doubled", "tripled")
    ]


def test_a_record_without_a_receipt_or_with_a_forged_one_is_unexpected(
    application: Application,
) -> None:
    application.feed(10)
    application.write(application.receipted(range(10), transaction=1), commit=10, transaction=1)
    stray = application.outputs_of([3])[:1]
    receipt = application.receipt(99, 0, 1).encode()
    forged = [(*stray[0][:5], [("__eos.receipt", receipt)])]
    application.write([*stray, *forged])
    verdict = application.audit()
    assert (faults(verdict), verdict.unexpected) == ({"duplicated": 1, "torn": 1}, 1)
    assert texts(application, verdict) == [
        "doubled[1]@6 comes from no input record",
        "doubled[1]@7 is visible, but the offset after its input in[1]@49 is not committed",
    ]


def test_a_part_is_judged_by_offsets_times_and_places(application: Application) -> None:
    application.feed(100)
    outputs = application.receipted(range(100), transaction=1)
    lost = outputs[40 * 2 : 40 * 2 + 2]
    kept = [output for output in outputs if output not in lost]
    application.write([*kept, outputs[70 * 2]], commit=100, transaction=1)
    source = f"{application.name}.in"
    moment = "2023-11-14T22:13:20.0{}Z"
    assert START == 1_700_000_000_000
    for start, end, records, expected in (
        ("beginning", "end", 100, {"lost": 2, "duplicated": 1}),
        ("beginning", "20", 40, {}),
        ("20", "21", 2, {"lost": 2}),
        ("21", "end", 58, {"duplicated": 1}),
        (f"{source}[0]@21", f"{source}[0]@35,{source}[1]@35", 49, {}),
        (moment.format(40), moment.format(50), 10, {"lost": 2}),
        (moment.format(41), moment.format(70), 29, {}),
        (moment.format(70), "2100-01-01", 30, {"duplicated": 1}),
        ("2100-01-01", "end", 0, {}),
    ):
        for proof in (Proof.RECEIPTS, Proof.FUNCTIONS):
            verdict = application.audit(start, end, proof)
            found = (verdict.input, faults(verdict))
            assert found == (records, expected), (start, end, proof, verdict)


def test_functions_tell_a_copy_from_an_equal_output_of_other_input(
    application: Application,
) -> None:
    application.feed(10)
    application.feed(10)
    application.write(application.outputs_of(range(10)) * 2, commit=20)
    assert application.audit().clean
    verdict = application.audit("5")
    assert verdict.clean, verdict
    assert (verdict.input, verdict.output) == (10, 20)
    application.write(application.outputs_of([4])[:1])
    assert faults(application.audit("5")) == {"duplicated": 1}


def test_functions_judge_what_was_processed_before_there_were_receipts(
    application: Application,
) -> None:
    application.feed(100)
    application.write(application.outputs_of(range(50)), commit=50)
    application.since = 25
    numbered = application.receipted(range(50, 100), transaction=2)
    application.write(numbered[:20] + numbered[21:], commit=100, transaction=2)
    verdict = application.audit()
    assert (verdict.input, verdict.output) == (100, 199)
    assert faults(verdict) == {"lost": 1, "torn": 1}
    with pytest.raises(StartRefused, match=r"have no receipts in the committed numbering"):
        application.audit(proof=Proof.RECEIPTS)
    assert application.audit("25", "end", Proof.RECEIPTS).lost == 1


def test_outputs_that_retention_removed_are_lost_only_from_the_part_that_wants_them(
    application: Application,
) -> None:
    application.feed(100)
    application.write(application.receipted(range(100), transaction=1), commit=100, transaction=1)
    admin = AdminClient({"bootstrap.servers": application.bootstrap_servers})
    removed = [
        TopicPartition(f"{application.name}.{topic}", p, 10)
        for topic in ("doubled", "tripled")
        for p in (0, 1)
    ]
    for future in admin.delete_records(removed).values():
        future.result(60)
    whole = application.audit()
    assert faults(whole) == {"lost": 40}
    assert f"{application.name}.doubled[0] begins at offset 10: earlier records are gone" in (
        whole.notes
    )
    assert application.audit("10").clean
    assert application.audit("9").lost >= 2


def test_a_range_that_cannot_be_judged_is_refused_with_its_reason(
    application: Application,
) -> None:
    application.feed(20)
    application.write(application.outputs_of(range(10)), commit=10)
    with pytest.raises(StartRefused, match=r"nothing from 7 on was processed"):
        application.audit("7")
    with pytest.raises(ConfigurationError, match=r"other\[0\] is not an input partition; expected"):
        application.audit("other[0]@1")
    with pytest.raises(ConfigurationError, match=r"--from 4 is after --to 2023-11-14"):
        application.audit("4", "2023-11-14T22:13:20.002")
    with pytest.raises(ConfigurationError, match=r"--from end is after --to beginning"):
        application.audit("end", "beginning")
