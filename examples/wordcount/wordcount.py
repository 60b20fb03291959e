"""Count the words of the lines in a topic."""

from eosframework import Record, Topology


def words(line: str) -> list[str]:
    return line.lower().split()


def word(record: Record[str, str]) -> str:
    return record.value


app = Topology("wordcount")
lines = app.stream("lines", key=str, value=str)
by_word = lines.flat_map_values(words).group_by(word, name="words")
by_word.count(store="word_counts").to("counts", value="json")
