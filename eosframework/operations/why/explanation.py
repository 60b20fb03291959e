"""The answer to `why`, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eosframework.engine.task.receipts import Receipt
from eosframework.engine.task.transaction_receipts import TransactionReceipt
from eosframework.kafka.inspect.written_record import RecordPlace, RecordTransaction
from eosframework.records import bounds_in_words, moment
from eosframework.state.query import as_json
from eosframework.topology.graph.code_places import Code

LISTED = 1000
"""Most inputs that are listed; more are counted."""

SHOWN_INPUTS = 10
"""Inputs in the text; `--json` has all that are listed."""


@dataclass(frozen=True, slots=True)
class PassedStep:
    """A step between an input and an output.

    Args:
        name: as messages name it.
        functions: of the user, with file and line.
        stores: that it keeps or looks up.
    """

    name: str
    functions: tuple[Code, ...]
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetEntry:
    """An entry of a store that the record met.

    Args:
        value: decoded; None: there was no entry.
        window: start and end in milliseconds, or as numbers of records; None: it is no window.
        is_timed: false: the window is one of records.
    """

    store: str
    key: Any
    value: Any
    timestamp: int | None = None
    window: tuple[int, int] | None = None
    is_timed: bool = True

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "store": self.store,
            "key": self.key,
            "value": self.value,
            "timestamp": self.timestamp,
            "window": None if self.window is None else list(self.window),
            "is_timed": self.is_timed,
        }


@dataclass(frozen=True, slots=True)
class GivenOutput:
    """An output of the functions that ran again."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass(frozen=True, slots=True)
class Rerun:
    """The result of running the functions again.

    Args:
        is_same: one of the outputs is the record that was asked for, with key, value and time;
            None: that cannot be judged.
        unproved: the reason why it cannot be judged; empty: it can.
        outputs: of the record, in order, without changelog records.
        met: the entries that the record met.
        inputs: the records in the windows, joins and tables that it met, the first `LISTED`.
        input_count: how many there are; None: they could not be found.
    """

    is_same: bool | None
    outputs: Sequence[GivenOutput]
    unproved: str = ""
    met: Sequence[MetEntry] = ()
    inputs: Sequence[RecordPlace] = ()
    input_count: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause of one output record.

    Args:
        place: of the output.
        key: of the output, as text or JSON.
        value: likewise.
        timestamp: in milliseconds.
        transaction: that wrote it.
        receipt: names its input record; None: it has none.
        of_transaction: receipt of a result that comes from no single record.
        input: the input record; None: not recorded.
        is_watermark: the input is the stream time of an upstream task, which closed a window.
        chain: for an input in an internal topic, the input that wrote that, and so on.
        task: `SUB-TOPOLOGY[PARTITION]`; None: not recorded.
        steps: from the source to the output.
        rerun: None: the functions did not run.
        missing: what the answer lacks, each with the setting that records it.
    """

    place: RecordPlace
    key: Any
    value: Any
    timestamp: int
    transaction: RecordTransaction
    receipt: Receipt | None = None
    of_transaction: TransactionReceipt | None = None
    input: RecordPlace | None = None
    is_watermark: bool = False
    chain: Sequence[RecordPlace] = ()
    task: str | None = None
    steps: Sequence[PassedStep] = ()
    rerun: Rerun | None = None
    missing: Sequence[str] = field(default_factory=tuple)

    @property
    def number(self) -> int | None:
        """The task's own number of the transaction; None: not recorded."""
        if self.receipt is not None:
            return self.receipt.transaction
        return None if self.of_transaction is None else self.of_transaction.number

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        transaction, rerun = self.transaction, self.rerun
        return {
            "output": str(self.place),
            "key": self.key,
            "value": self.value,
            "timestamp": self.timestamp,
            "receipt": None if self.receipt is None else str(self.receipt),
            "input": None if self.input is None else str(self.input),
            "is_watermark": self.is_watermark,
            "chain": [str(place) for place in self.chain],
            "task": self.task,
            "transaction": {
                "number": self.number,
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "marker_offset": transaction.marker_offset,
                "committed_at": transaction.committed_at.isoformat(),
            },
            "steps": [
                {
                    "name": step.name,
                    "functions": [_code_text(code) for code in step.functions],
                    "stores": list(step.stores),
                }
                for step in self.steps
            ],
            "rerun": None if rerun is None else _rerun_data(rerun),
            "missing": list(self.missing),
        }


def as_text(found: Explanation) -> str:
    """Return the answer for people."""
    return "\n".join(_lines(found))


def _lines(found: Explanation) -> Iterator[str]:
    transaction = found.transaction
    yield f"{found.place}  key {_json(found.key)}  {moment(found.timestamp)}"
    yield f"  value        {_json(found.value)}"
    if found.input is not None:
        via = "".join(f", which came from {place}" for place in found.chain)
        via += " (a watermark: the stream time of an upstream task)" * found.is_watermark
        yield f"  input        {found.input}{via}"
    elif found.of_transaction is not None:
        yield "  input        no single record: a result of many, at a commit or by a clock"
    if found.task is not None:
        yield f"  task         {found.task}, transaction {found.number}"
    name = transaction.transactional_id or "an id that no coordinator knows any more"
    yield f"  written by   {name}"
    yield (
        f"  transaction  producer {transaction.producer_id}, epoch {transaction.producer_epoch}; "
        f"committed at {transaction.committed_at:%Y-%m-%d %H:%M:%S} by the marker at offset "
        f"{transaction.marker_offset}"
    )
    for index, step in enumerate(found.steps):
        functions = ", ".join(_code_text(code) for code in step.functions)
        functions += f"  [store {', '.join(step.stores)}]" if step.stores else ""
        yield f"  {'steps' if not index else '':<12} {step.name}{functions and '  '}{functions}"
    if found.rerun is not None:
        yield from _rerun_lines(found.rerun)
    for text in found.missing:
        yield f"  missing: {text}"


def _rerun_lines(rerun: Rerun) -> Iterator[str]:
    for index, entry in enumerate(rerun.met):
        window = ""
        if entry.window is not None:
            window = f"  {bounds_in_words(*entry.window, is_timed=entry.is_timed)}"
        value = "no entry" if entry.value is None else _json(entry.value)
        head = "state met" if not index else ""
        yield f"  {head:<12} {entry.store}: {_json(entry.key)}{window}  {value}"
    if rerun.input_count is not None:
        shown = ", ".join(map(str, rerun.inputs[:SHOWN_INPUTS]))
        more = rerun.input_count - min(len(rerun.inputs), SHOWN_INPUTS)
        yield f"  {'inputs':<12} {rerun.input_count:,}: {shown}{f' and {more:,} more' * (more > 0)}"
    if rerun.is_same:
        yield "  run again    gives this record, byte for byte"
        return
    if rerun.is_same is None:
        yield f"  run again    proves nothing: {rerun.unproved}"
        return
    yield "  run again    does NOT give this record; it gives"
    for output in rerun.outputs:
        key, value = bytes_shown(output.key), bytes_shown(output.value)
        yield f"    {output.topic}: key {_json(key)}, {_json(value)}"
    if not rerun.outputs:
        yield "    nothing"


def _rerun_data(rerun: Rerun) -> Mapping[str, Any]:
    return {
        "is_same": rerun.is_same,
        "unproved": rerun.unproved,
        "outputs": [
            {
                "topic": output.topic,
                "key": bytes_shown(output.key),
                "value": bytes_shown(output.value),
                "timestamp": output.timestamp,
            }
            for output in rerun.outputs
        ],
        "state": [entry.as_data() for entry in rerun.met],
        "inputs": [str(place) for place in rerun.inputs],
        "input_count": rerun.input_count,
    }


def _code_text(code: Code) -> str:
    return code.name if code.file is None else f"{code.name} ({code.file}:{code.line})"


def bytes_shown(data: bytes | None) -> Any:
    """Return bytes for display: text, or hexadecimal digits."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _json(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value).decode()
