from pathlib import Path

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException
from typer.testing import CliRunner

from eosframework import errors
from eosframework.cli.explain import commands
from eosframework.cli.explain_errors import errors_page
from eosframework.kafka.taxonomy import (
    Call,
    Category,
    classify,
    exception_for,
    raise_for,
    table,
)

PROTOCOL_CODES = """
INVALID_PRODUCER_EPOCH PRODUCER_FENCED UNKNOWN_PRODUCER_ID INVALID_PRODUCER_ID_MAPPING
INVALID_TXN_STATE INVALID_TRANSACTION_TIMEOUT TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED
CONCURRENT_TRANSACTIONS NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE UNKNOWN_TOPIC_OR_PART
ILLEGAL_GENERATION UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID OUT_OF_ORDER_SEQUENCE_NUMBER
DUPLICATE_SEQUENCE_NUMBER TRANSACTION_ABORTABLE TRANSACTION_COORDINATOR_FENCED
_FENCED _TIMED_OUT _CONFLICT _PREV_IN_PROGRESS _INCONSISTENT MSG_SIZE_TOO_LARGE _FATAL _STATE
_QUEUE_FULL _PURGE_QUEUE
"""

NAMES_IN_OLDER_DOCUMENTS = """
InvalidProducerEpoch InvalidPidMapping NotCoordinatorForTransactionalId
NotCorrdinatorForGTransactionalId InvalidTxnRequest CoordinatorNotAvailable
DuplicateSequenceNumber InvalidSequenceNumber InvalidTransactionTimeout ProducerFenced
ProducerFencedException OutOfOrderSequence OutOfOrderSequenceException AuthorizationException
ConfigException BufferError SystemError RuntimeError
"""

REJECTED_OUTPUTS = """
MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD INVALID_TIMESTAMP _INCONSISTENT
UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC _UNKNOWN_PARTITION TOPIC_EXCEPTION
"""

ID = "flights:late:0"
ALL_PAIRS = [(code, call) for code in table().failures for call in Call]
FATAL, RETRIABLE, REQUIRES_ABORT = (True, False, False), (False, True, False), (False, False, True)


def test_every_code_and_call_has_exactly_one_action():
    for code, call in ALL_PAIRS:
        verdict = classify(KafkaError(code), call)
        assert isinstance(verdict.category, Category)
        assert verdict.action
        assert verdict.meaning


@pytest.mark.parametrize("name", PROTOCOL_CODES.split())
def test_every_code_of_the_protocol_is_in_the_table(name):
    assert getattr(KafkaError, name) in table().failures


@pytest.mark.parametrize("name", NAMES_IN_OLDER_DOCUMENTS.split())
def test_older_names_of_errors_find_their_row(name):
    assert CliRunner().invoke(commands, ["errors", name, "--json"]).exit_code == 0


def test_names_in_the_table_are_those_librdkafka_uses():
    for code, failure in table().failures.items():
        if code != KafkaError.NO_ERROR:
            assert KafkaError(code).name() == failure.name


def test_a_failed_commit_is_never_merely_retriable():
    for flags in (FATAL, RETRIABLE, REQUIRES_ABORT, (False, False, False)):
        for code in (*table().failures, 9999):
            verdict = classify(KafkaError(code, "reason", *flags), Call.COMMIT)
            assert verdict.category is not Category.RETRIABLE, verdict.name


@pytest.mark.parametrize("call", list(Call))
def test_fenced_is_recoverable_although_librdkafka_flags_it_fatal(call):
    verdict = classify(KafkaError(KafkaError._FENCED, "fenced", *FATAL), call)
    assert verdict.category is Category.APPLICATION_RECOVERABLE
    assert verdict.raises == "TaskFenced"


def test_fatal_out_of_produce_is_fatal_although_librdkafka_does_not_flag_it():
    verdict = classify(KafkaException(KafkaError(KafkaError._FATAL)), Call.PRODUCE)
    assert verdict.category is Category.FATAL


def test_a_system_error_out_of_flush_asks_for_the_cause():
    verdict = classify(SystemError("returned NULL without setting an exception"), Call.PRODUCE)
    assert verdict.category is Category.FATAL
    assert "asks any transactional call" in verdict.action


def test_a_full_queue_is_backpressure_and_still_a_buffer_error():
    raised = exception_for(BufferError("Local: Queue full"), Call.PRODUCE, transactional_id=ID)
    assert isinstance(raised, BufferError)
    assert isinstance(raised, errors.Retriable)


@pytest.mark.parametrize(
    ("code", "flags"),
    [("_TIMED_OUT", RETRIABLE), ("_TIMED_OUT", REQUIRES_ABORT), ("_TIMED_OUT", FATAL)],
)
def test_a_commit_that_timed_out_is_unknown_whatever_its_flags(code, flags):
    verdict = classify(KafkaError(getattr(KafkaError, code), "", *flags), Call.COMMIT)
    assert verdict.category is Category.COMMIT_OUTCOME_UNKNOWN


@pytest.mark.parametrize("call", [Call.COMMIT, Call.ABORT])
def test_an_invalid_transaction_state_at_the_end_leaves_the_outcome_unknown(call):
    verdict = classify(KafkaError(KafkaError.INVALID_TXN_STATE, "", *FATAL), call)
    assert verdict.category is Category.COMMIT_OUTCOME_UNKNOWN


@pytest.mark.parametrize("call", [Call.INIT, Call.ABORT])
def test_init_and_abort_that_timed_out_are_repeated(call):
    verdict = classify(KafkaError(KafkaError._TIMED_OUT, "", *RETRIABLE), call)
    assert verdict.category is Category.RETRIABLE


def test_an_abort_flag_overrules_a_retriable_row():
    error = KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, "", *REQUIRES_ABORT)
    assert classify(error, Call.SEND_OFFSETS).category is Category.ABORTABLE


@pytest.mark.parametrize(
    ("flags", "call", "category"),
    [
        (FATAL, Call.INIT, Category.FATAL),
        (FATAL, Call.COMMIT, Category.COMMIT_OUTCOME_UNKNOWN),
        (REQUIRES_ABORT, Call.PRODUCE, Category.ABORTABLE),
        (RETRIABLE, Call.INIT, Category.RETRIABLE),
        (RETRIABLE, Call.COMMIT, Category.COMMIT_OUTCOME_UNKNOWN),
        ((False, False, False), Call.BEGIN, Category.FATAL),
    ],
)
def test_flags_decide_for_codes_without_a_row(flags, call, category):
    assert classify(KafkaError(9999, "new", *flags), call).category is category


@pytest.mark.parametrize(
    "name",
    REJECTED_OUTPUTS.split(),
)
@pytest.mark.parametrize("call", [Call.PRODUCE, Call.COMMIT])
def test_rejected_outputs_are_told_apart_so_that_the_record_can_be_found(name, call):
    verdict = classify(KafkaError(getattr(KafkaError, name)), call)
    assert (verdict.category, verdict.data) == (Category.ABORTABLE, True)


@pytest.mark.parametrize(
    ("name", "call", "kind"),
    [
        ("_TIMED_OUT", "init", errors.Retriable),
        ("_TIMED_OUT", "send_offsets", errors.TransactionAborted),
        ("MSG_SIZE_TOO_LARGE", "commit", errors.DataRejected),
        ("INVALID_PRODUCER_ID_MAPPING", "commit", errors.TaskFenced),
        ("ILLEGAL_GENERATION", "send_offsets", errors.TaskFenced),
        ("UNKNOWN_MEMBER_ID", "send_offsets", errors.TaskFenced),
        ("FENCED_INSTANCE_ID", "send_offsets", errors.TaskFenced),
        ("FENCED_INSTANCE_ID", "consume", errors.InstanceFenced),
        ("_TRANSPORT", "commit", errors.OutcomeUnknown),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "init", errors.TransactionFatal),
        ("_STATE", "produce", errors.TransactionFatal),
        ("_AUTO_OFFSET_RESET", "consume", errors.PositionLost),
    ],
)
def test_raised_errors_are_kafka_exceptions_and_say_the_consequence(name, call, kind):
    error = KafkaError(getattr(KafkaError, name))
    with pytest.raises(kind) as caught:
        raise_for(KafkaException(error), Call(call), transactional_id=ID)
    assert isinstance(caught.value, KafkaException)
    assert caught.value.args[0] is error
    assert isinstance(caught.value.__cause__, KafkaException)


def test_the_message_names_the_id_the_call_the_code_and_the_next_step():
    raised = exception_for(
        KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        Call.INIT,
        transactional_id=ID,
    )
    for part in (
        ID,
        "init",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "Write and Describe",
        "stops",
    ):
        assert part in str(raised)


def test_a_suspect_producer_is_no_error():
    action = table().failures[KafkaError.NO_ERROR].actions[Call.COMMIT]
    assert action.category is Category.SUSPECT_PRODUCER
    with pytest.raises(ValueError, match="no failure"):
        raise_for(KafkaError(KafkaError.NO_ERROR), Call.COMMIT, transactional_id=ID)


def test_the_documentation_is_the_table():
    page = Path(__file__).parents[3] / "docs" / "errors.md"
    assert page.read_text(encoding="utf-8") == errors_page(table())


def test_json_has_every_error_with_every_call():
    content = orjson.loads(CliRunner().invoke(commands, ["errors", "--json"]).stdout)
    assert len(content["errors"]) == len(table().failures)
    assert all(set(row["calls"]) == set(Call) for row in content["errors"])


def test_an_error_of_the_database_goes_by_its_state_or_class():
    run = CliRunner().invoke(commands, ["errors", "53100", "--json"])
    [found] = orjson.loads(run.stdout)["database"]["states"]
    assert (found["state"], found["category"]) == ("53", "unavailable")
    assert "SQLSTATE 25P03" in CliRunner().invoke(commands, ["errors", "25p03"]).stdout
    assert orjson.loads(run.stdout)["errors"] == []


def test_an_unknown_code_is_answered_with_the_closest_ones():
    result = CliRunner().invoke(commands, ["errors", "InvalidPidMaping"])
    assert isinstance(result.exception, errors.ConfigurationError)
    assert "InvalidPidMapping" in str(result.exception)
