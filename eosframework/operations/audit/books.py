"""The books of all input partitions judged by receipts, and their verdict.

1. every receipt goes into the book of its input partition
2. where a book has a hole or a copy, the outputs are read again to find its neighbours
3. the neighbours identify the input records and the transactions
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from eosframework.operations.audit.book import Book, Copies, Span
from eosframework.operations.audit.verdict import DETAILS_OF_A_KIND, Detail, Details, Verdict
from eosframework.processing.ports import Message
from eosframework.processing.transaction.receipts import HEADER_RECEIPT, Receipt
from eosframework.records import TopicPartition

Answers = dict[tuple[TopicPartition, int], list[tuple[Receipt, str]]]
"""Receipts by input partition and output number, each with its place."""


class Books:
    """The books by input partition.

    Args:
        application: only receipts of this application count.
        spans: the judged input.
    """

    def __init__(self, application: str, spans: Iterable[Span]) -> None:
        self._application = application
        self._books = {span.partition: Book(span) for span in spans}
        self._answers: Answers = {}

    def take_inputs(self, partition: TopicPartition, messages: Sequence[Message]) -> None:
        """Count input records in the range of a partition."""
        book = self._books[partition]
        for message in messages:
            book.take_input(message.offset())

    def take(self, output: TopicPartition, message: Message) -> bool:
        """Add an output record; False: receipts do not judge it."""
        receipt = self._own(message)
        if receipt is None:
            return False
        book = self._books[TopicPartition(receipt.topic, receipt.partition)]
        since = book.span.series.since
        if receipt.since != since and receipt.offset < since:
            return False
        book.take(receipt, output, message.offset())
        return True

    def ask(self) -> bool:
        """Collect the numbers to look up; return whether the outputs must be read again."""
        for partition, book in self._books.items():
            for first, end in islice(book.holes(), DETAILS_OF_A_KIND):
                self._answers[partition, first - 1] = []
                self._answers[partition, end] = []
            for receipt, _ in book.copied:
                self._answers[partition, receipt.number] = []
        return bool(self._answers)

    def look_again(self, output: TopicPartition, message: Message) -> None:
        """Look up an output record in the second pass."""
        receipt = self._own(message)
        if receipt is not None:
            partition = TopicPartition(receipt.topic, receipt.partition)
            found = self._answers.get((partition, receipt.number))
            if found is not None and receipt.since == self._books[partition].span.series.since:
                found.append((receipt, f"{output}@{message.offset()}"))

    def verdict(self) -> Verdict:
        """Return the combined verdict of all books."""
        verdict = Verdict()
        for book in self._books.values():
            verdict += _BookVerdict(book, self._answers).verdict()
        return verdict

    def _own(self, message: Message) -> Receipt | None:
        for name, value in message.headers() or ():
            if name == HEADER_RECEIPT:
                receipt = Receipt.parse(value)
                if receipt is None or receipt.application != self._application:
                    return None
                partition = TopicPartition(receipt.topic, receipt.partition)
                return receipt if partition in self._books else None
        return None


class _BookVerdict:
    """The verdict on one book's holes and copies."""

    def __init__(self, book: Book, answers: Answers) -> None:
        self._book = book
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
            text += f"; there is nothing of {_transactions_text(transactions)}"
        transaction = transactions.start if len(transactions) == 1 else None
        self._details.add(Detail("lost", text, name, through, transaction=transaction))

    def _neighbour(self, number: int) -> Receipt | None:
        found = self._answers.get((self._book.span.partition, number))
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
            text += f": the whole of transaction {transaction}"
        text += f", from {copies.place} on"
        self._details.add(Detail("duplicated", text, name, through, copies.place, transaction))

    def _report_copy(self, receipt: Receipt, place: str) -> None:
        name = self._book.name(receipt.offset)
        found = self._answers.get((self._book.span.partition, receipt.number), [])
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


def _transactions_text(transactions: range) -> str:
    if len(transactions) == 1:
        return f"transaction {transactions.start}"
    return f"transactions {transactions.start} to {transactions.stop - 1}"
