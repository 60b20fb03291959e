"""Books: the evidence of receipts, one book for each numbered stretch of input, and their verdict.

1. every receipt goes into the book of its input record
2. where a book has a hole or a copy, the outputs are read again to find its neighbours
3. the neighbours identify the input records and the transactions

Outputs are numbered without gaps, so a lost output leaves a hole between two numbers, and a copy
repeats a number. Each output takes two bits and a byte, however large its number: it exists, an
input record's outputs begin there, and its transaction.

    begin of the range    the first number of its first receipt; if that receipt names an earlier
                          input record within the range as its predecessor, that one is lost
    end of the range      the first number after it, by the receipt found there; at the committed
                          offset, the number stored with the offset

A partition has more than one stretch if a backfill job and live workers, or several jobs, processed
it under numberings of their own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from eosframework.engine.task.receipts import Receipt, Series
from eosframework.operations.audit.audit_verdict import DETAILS_OF_A_KIND, Detail, Details, Verdict
from eosframework.operations.audit.bitmap import Bitmap, Bytemap
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message


@dataclass(frozen=True, slots=True)
class Span:
    """The input records of one partition that receipts judge.

    Args:
        start: offset of the first record.
        end: offset after the last record; at most `position`.
        position: a committed offset.
        series: the numbering committed with it.
        transaction: number of the transaction that committed it.
        position_now: the committed offset when the outputs were complete.
        until: offset from which on the numbering owns no records; None: live workers continue it.
    """

    partition: TopicPartition
    start: int
    end: int
    position: int
    series: Series
    transaction: int
    position_now: int
    until: int | None = None

    def contains(self, offset: int) -> bool:
        """Return whether a record is judged."""
        return self.start <= offset < self.end

    def owns(self, offset: int) -> bool:
        """Return whether the outputs of a record have receipts of this numbering, or should."""
        return self.series.since <= offset and (self.until is None or offset < self.until)


@dataclass(slots=True)
class Copies:
    """Duplicates of outputs of one transaction.

    Args:
        count: number of duplicates.
        first: the lowest output number.
        end: the number after the highest.
        inputs: offsets of the first and the last input record.
        place: place of the first duplicate.
    """

    count: int
    first: int
    end: int
    inputs: tuple[int, int]
    place: str

    def add(self, receipt: Receipt) -> None:
        """Count another duplicate."""
        self.count += 1
        self.first = min(self.first, receipt.number)
        self.end = max(self.end, receipt.number + 1)
        low, high = self.inputs
        self.inputs = min(low, receipt.offset), max(high, receipt.offset)


class Book:
    """All receipts of one stretch, added in any order between output partitions."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.records = 0
        self.inputs = Bitmap()
        """Offsets of the input records in the range, relative to its start."""
        self.visible = 0
        self.numbers = Bitmap()
        self.copies: dict[int, Copies] = {}
        """By transaction number of the copies."""
        self.copied: list[tuple[Receipt, str]] = []
        """The first copies, each with its place."""
        self.duplicated = self.reordered = self.unexpected = 0
        self.split: set[int] = set()
        """Offsets of input records whose outputs are in several transactions."""
        self.uncommitted: set[int] = set()
        """Offsets of input records from the committed offset on that already have outputs."""
        self.details = Details()
        self._firsts = Bitmap()
        self._transactions = Bytemap()
        self._latest_by_output: dict[TopicPartition, tuple[int, int]] = {}
        self._lowest: Receipt | None = None
        self._highest: Receipt | None = None
        self._below_end: int | None = None
        self._above: Receipt | None = None

    @property
    def place(self) -> tuple[TopicPartition, int]:
        """The input partition, and the offset at which the numbering begins."""
        return self.span.partition, self.span.series.since

    def name(self, offset: int) -> str:
        """Return an input record's place as messages name it."""
        return f"{self.span.partition}@{offset}"

    def add_input(self, offset: int) -> None:
        """Count an input record of the range."""
        self.records += 1
        self.inputs.add(offset - self.span.start)

    def add(self, receipt: Receipt, output: TopicPartition, offset: int) -> None:
        """Add the receipt of the output record at `offset` of `output`."""
        span = self.span
        if receipt.offset >= span.position_now:
            self._take_uncommitted(receipt, f"{output}@{offset}")
        if receipt.since != span.series.since:
            if span.start <= receipt.offset < span.end:
                self._take_of_another_numbering(receipt, f"{output}@{offset}")
        elif receipt.offset < span.start:
            self._below_end = max(self._below_end or 0, receipt.end)
        elif receipt.offset >= span.end:
            if self._above is None or receipt.first < self._above.first:
                self._above = receipt
        else:
            self._take_inside(receipt, output, offset)

    def holes(self) -> Iterator[tuple[int, int]]:
        """Yield the runs of missing numbers, as the first one and the one after the last."""
        return self.numbers.missing(*self._bounds())

    def input_before_end(self) -> int | None:
        """Return the last input record with outputs before the end of the range."""
        return self._behind()[0]

    def begins_input(self, number: int) -> bool:
        """Return whether a number is known to be the first output of an input record."""
        return number in self._firsts

    def same_transaction(self, number: int, other: int) -> bool:
        """Return whether two outputs exist and belong to the same transaction."""
        there = number in self.numbers and other in self.numbers
        return there and self._transactions[number] == self._transactions[other]

    def _take_inside(self, receipt: Receipt, output: TopicPartition, offset: int) -> None:
        self.visible += 1
        number = receipt.number
        if receipt.end > self.span.series.number:
            self._take_unexpected(receipt, f"{output}@{offset}")
        elif not self.numbers.add(number):
            self._take_copy(receipt, f"{output}@{offset}")
        else:
            if self._lowest is None or number < self._lowest.number:
                self._lowest = receipt
            if self._highest is None or number > self._highest.number:
                self._highest = receipt
            self._firsts.add(receipt.first)
            self._firsts.add(receipt.end)
            self._transactions.put(number, receipt.transaction)
            if receipt.count > 1:
                self._compare_with_siblings(receipt)
            self._keep_order(receipt, output, offset)

    def _compare_with_siblings(self, receipt: Receipt) -> None:
        for sibling in (receipt.number - 1, receipt.number + 1):
            if not receipt.first <= sibling < receipt.end or sibling not in self.numbers:
                continue
            if self.same_transaction(receipt.number, sibling) or receipt.offset in self.split:
                continue
            self.split.add(receipt.offset)
            name = self.name(receipt.offset)
            text = (
                f"the outputs of {name} are in different transactions, "
                f"one of them {receipt.transaction}"
            )
            self.details.add(Detail("torn", text, name, transaction=receipt.transaction))

    def _keep_order(self, receipt: Receipt, output: TopicPartition, offset: int) -> None:
        before = self._latest_by_output.get(output)
        if before is None or receipt.number > before[0]:
            self._latest_by_output[output] = receipt.number, receipt.offset
            return
        self.reordered += 1
        if self.details.wants("reordered"):
            name, place = self.name(receipt.offset), f"{output}@{offset}"
            after = self.name(before[1])
            text = f"{place}, an output of {name}, comes after an output of {after}"
            if before[1] == receipt.offset:
                text = f"{place}, an output of {name}, comes after one that it gave later"
            self.details.add(Detail("reordered", text, name, None, place, receipt.transaction))

    def _take_copy(self, receipt: Receipt, place: str) -> None:
        self.duplicated += 1
        copies = self.copies.get(receipt.transaction)
        if copies is None:
            inputs = receipt.offset, receipt.offset
            copies = Copies(0, receipt.number, receipt.number + 1, inputs, place)
            self.copies[receipt.transaction] = copies
        copies.add(receipt)
        if len(self.copied) < DETAILS_OF_A_KIND:
            self.copied.append((receipt, place))

    def _take_of_another_numbering(self, receipt: Receipt, place: str) -> None:
        self.visible += 1
        self.duplicated += 1
        name, since = self.name(receipt.offset), self.span.series.since
        text = (
            f"{place} is an output of {name} from when its partition was numbered since "
            f"@{receipt.since}; it was processed again since @{since}"
        )
        self.details.add(Detail("duplicated", text, name, None, place, receipt.transaction))

    def _take_unexpected(self, receipt: Receipt, place: str) -> None:
        self.duplicated += 1
        self.unexpected += 1
        name, last = self.name(receipt.offset), self.span.series.number
        text = (
            f"{place} has number {receipt.number} and input {name} in its receipt, but up to "
            f"{self.name(self.span.position)} there are {last} outputs"
        )
        self.details.add(Detail("duplicated", text, None, None, place, receipt.transaction))

    def _take_uncommitted(self, receipt: Receipt, place: str) -> None:
        if receipt.offset in self.uncommitted:
            return
        self.uncommitted.add(receipt.offset)
        name = self.name(receipt.offset)
        text = f"{place} is visible, but the offset after its input {name} is not committed"
        self.details.add(Detail("torn", text, name, None, place, receipt.transaction))

    def _behind(self) -> tuple[int | None, int]:
        """Return the last input record with outputs before the range ends, and the number there."""
        if self._above is None or self.span.end == self.span.position:
            return self.span.series.last, self.span.series.number
        return self._above.previous, self._above.first

    def _bounds(self) -> tuple[int, int]:
        """Return the first number of the range and the number after its last."""
        span, lowest, below_end = self.span, self._lowest, self._below_end
        last_input, end = self._behind()
        if span.start == span.end:
            return 0, 0
        if span.start <= span.series.since:
            first = 0
        elif lowest is None:
            if last_input is None or last_input < span.start:
                return end, end
            known = end - 1 if last_input < span.end else end
            first = known if below_end is None else min(below_end, known)
        else:
            is_first = lowest.previous is None or lowest.previous < span.start
            known = lowest.first if is_first else lowest.first - 1
            first = known if is_first or below_end is None else min(below_end, known)
        if last_input is not None and last_input >= span.end:
            end = self._end_inside(first, end)
        return first, end

    def _end_inside(self, first: int, end: int) -> int:
        """Return the end of the range if the input record from `_behind` is past it.

        Numbers missing up to `end` belong to that record alone if there is only one, or if no other
        input record lies between. Otherwise they count as lost, here or right after the range.
        """
        span, highest = self.span, self._highest
        inside_end = first if highest is None else highest.end
        after = span.start if highest is None else highest.offset + 1
        others = self.inputs.count(after - span.start, span.end - span.start)
        return inside_end if not others or end - inside_end <= 1 else end


Answers = dict[tuple[TopicPartition, int, int], list[tuple[Receipt, str]]]
"""Receipts by input partition, begin of the numbering, and output number, each with its place."""


class Books:
    """The books of all stretches.

    Args:
        application: only receipts of this application count.
        spans: the judged input.
        counted: the unit that receipts count as transactions, for messages.
    """

    def __init__(
        self, application: str, spans: Iterable[Span], *, counted: str = "transaction"
    ) -> None:
        self._application = application
        self._counted = counted
        self._shelves: dict[TopicPartition, list[Book]] = {}
        for span in sorted(spans, key=lambda span: (span.partition, span.start)):
            self._shelves.setdefault(span.partition, []).append(Book(span))
        self._answers: Answers = {}

    def add_inputs(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Count input records in the ranges of a partition."""
        for book in self._shelves[partition]:
            for message in messages:
                if book.span.contains(message.offset()):
                    book.add_input(message.offset())

    def take_ranges_as_inputs(self, partitions: Container[TopicPartition] | None = None) -> None:
        """Count each offset of the ranges as an input record.

        Args:
            partitions: whose ranges. None: all.
        """
        for partition, shelf in self._shelves.items():
            if partitions is None or partition in partitions:
                for book in shelf:
                    for offset in range(book.span.start, book.span.end):
                        book.add_input(offset)

    def add(self, output: TopicPartition, message: Message) -> bool:
        """Add an output record; False: receipts do not judge it."""
        receipt = self._own(message)
        if receipt is None:
            return False
        shelf = self._shelves[TopicPartition(receipt.topic, receipt.partition)]
        offset = receipt.offset
        owners = [book for book in shelf if book.span.owns(offset)]
        judging = [book for book in shelf if book.span.contains(offset)] or owners[-1:]
        # The book of its numbering also learns of records outside of its range: they show the
        # numbers at the ends of the range.
        numbering = self._book(receipt)
        if numbering is not None and numbering not in judging:
            judging.append(numbering)
        for book in judging:
            book.add(receipt, output, message.offset())
        return bool(owners)

    def prepare_second_pass(self) -> bool:
        """Collect the numbers to look up; return whether the outputs must be read again."""
        for book in self._all():
            for first, end in islice(book.holes(), DETAILS_OF_A_KIND):
                self._answers[*book.place, first - 1] = []
                self._answers[*book.place, end] = []
            for receipt, _ in book.copied:
                self._answers[*book.place, receipt.number] = []
        return bool(self._answers)

    def look_up(self, output: TopicPartition, message: Message) -> None:
        """Look up an output record in the second pass."""
        receipt = self._own(message)
        if receipt is not None:
            partition = TopicPartition(receipt.topic, receipt.partition)
            found = self._answers.get((partition, receipt.since, receipt.number))
            if found is not None:
                found.append((receipt, f"{output}@{message.offset()}"))

    def verdict(self) -> Verdict:
        """Return the combined verdict of all books."""
        verdict = Verdict()
        for book in self._all():
            verdict += _BookVerdict(book, self._answers, self._counted).verdict()
        return verdict

    def _all(self) -> Iterator[Book]:
        return chain.from_iterable(self._shelves.values())

    def _book(self, receipt: Receipt) -> Book | None:
        """Return the book of a receipt's numbering."""
        shelf = self._shelves[TopicPartition(receipt.topic, receipt.partition)]
        return next((one for one in shelf if one.span.series.since == receipt.since), None)

    def _own(self, message: Message) -> Receipt | None:
        receipt = Receipt.of(message)
        if receipt is None or receipt.application != self._application:
            return None
        partition = TopicPartition(receipt.topic, receipt.partition)
        return receipt if partition in self._shelves else None


class _BookVerdict:
    """The verdict on one book's holes and copies."""

    def __init__(self, book: Book, answers: Answers, counted: str) -> None:
        self._book = book
        self._counted = counted
        self._answers = answers
        self._details = Details(book.details.sorted())
        self._lost = 0
        self._torn: set[int] = set()
        """First numbers of input records whose outputs are partly lost."""

    def verdict(self) -> Verdict:
        book = self._book
        for first, end in book.holes():
            self._lose(first, end)
        self._report_copies()
        return Verdict(
            input=book.records,
            output=book.visible,
            lost=self._lost,
            duplicated=book.duplicated,
            reordered=book.reordered,
            torn=len(self._torn) + len(book.split) + len(book.uncommitted),
            unexpected=book.unexpected,
            details=self._details.sorted(),
        )

    def _lose(self, first: int, end: int) -> None:
        book = self._book
        self._lost += end - first
        if first - 1 in book.numbers and not book.begins_input(first):
            self._torn.add(self._beginning(first))
        if end in book.numbers and not book.begins_input(end):
            self._torn.add(self._beginning(end))
        if self._details.wants("lost"):
            self._report_lost(first, end)

    def _beginning(self, number: int) -> int:
        while number > 0 and not self._book.begins_input(number):
            number -= 1
        return number

    def _report_lost(self, first: int, end: int) -> None:
        left, right = self._neighbour(first - 1), self._neighbour(end)
        if left is not None and left.end > first:
            stop = min(left.end, end)
            self._report_part(left, first, stop)
            first = stop
        if right is not None and right.first < end and first < end:
            begin = max(right.first, first)
            self._report_part(right, begin, end)
            end = begin
        if first < end:
            self._report_inputs(first, end, left, right)

    def _report_part(self, sibling: Receipt, first: int, end: int) -> None:
        """Report lost outputs of an input record whose other outputs exist."""
        name = self._book.name(sibling.offset)
        for number in range(first, end):
            text = f"output {number - sibling.first + 1} of {sibling.count} of {name} is not there"
            self._details.add(Detail("lost", text, name, transaction=sibling.transaction))
        text = f"{name}: only a part of its outputs is there"
        self._details.add(Detail("torn", text, name, transaction=sibling.transaction))

    def _report_inputs(
        self, first: int, end: int, left: Receipt | None, right: Receipt | None
    ) -> None:
        """Report input records without any outputs."""
        book, span = self._book, self._book.span
        after = span.start - 1 if left is None else max(left.offset, span.start - 1)
        last = book.input_before_end() if right is None else right.previous
        last = span.end - 1 if last is None else last
        transactions = _between(left, right, span.transaction + 1)
        candidates = book.inputs.count(after + 1 - span.start, last + 1 - span.start)
        name, through = book.name(last), None
        if end - first > 1 and last > after + 1 and candidates != 1:
            begin = book.inputs.first(after + 1 - span.start, last + 1 - span.start)
            name, through = book.name(span.start + begin), name
        text = _missing_text(end - first, name, through)
        if transactions:
            text += f"; there is nothing of {_run_text(self._counted, transactions)}"
        transaction = transactions.start if len(transactions) == 1 else None
        self._details.add(Detail("lost", text, name, through, transaction=transaction))

    def _neighbour(self, number: int) -> Receipt | None:
        found = self._answers.get((*self._book.place, number))
        return found[0][0] if found else None

    def _report_copies(self) -> None:
        whole = {t for t, copies in self._book.copies.items() if _is_run(copies)}
        for transaction in sorted(whole):
            self._report_run(transaction, self._book.copies[transaction])
        for receipt, place in self._book.copied:
            if receipt.transaction not in whole:
                self._report_copy(receipt, place)

    def _report_run(self, transaction: int, copies: Copies) -> None:
        book = self._book
        name, through = (book.name(offset) for offset in copies.inputs)
        text = f"all {copies.count:,} outputs of {name} to {through} are there again"
        before = book.same_transaction(copies.first - 1, copies.first)
        behind = book.same_transaction(copies.end - 1, copies.end)
        if not before and not behind:
            text += f": the whole of {self._counted} {transaction}"
        text += f", from {copies.place} on"
        self._details.add(Detail("duplicated", text, name, through, copies.place, transaction))

    def _report_copy(self, receipt: Receipt, place: str) -> None:
        name = self._book.name(receipt.offset)
        found = self._answers.get((*self._book.place, receipt.number), [])
        others = [other for _, other in found if other != place]
        which = f"output {receipt.index + 1} of {receipt.count} of {name}"
        text = f"{place} repeats {', '.join(others)}: {which}"
        self._details.add(
            Detail("duplicated", text, name, None, place, transaction=receipt.transaction)
        )


def _is_run(copies: Copies) -> bool:
    low, high = copies.inputs
    return low < high and copies.count == copies.end - copies.first


def _between(left: Receipt | None, right: Receipt | None, behind: int) -> range:
    """Return the transactions between two outputs; none of their outputs exists."""
    if left is None:
        return range(0)
    return range(left.transaction + 1, behind if right is None else right.transaction)


def _missing_text(outputs: int, name: str, through: str | None) -> str:
    if through is not None:
        return f"{outputs:,} outputs of input records from {name} to {through} are not there"
    if outputs > 1:
        return f"all {outputs:,} outputs of {name} are not there"
    return f"the output of {name} is not there"


def _run_text(counted: str, run: range) -> str:
    if len(run) == 1:
        return f"{counted} {run.start}"
    return f"{counted} {run.start} to {counted} {run.stop - 1}"
