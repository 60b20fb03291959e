"""Files of every format as the records of a topic, in an order that any later reading has too."""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eosframework.errors import ConfigurationError, RunError
from eosframework.kafka.client.partitioner import partition_of
from eosframework.records import Record
from eosframework.serialization.serdes import JSON, STRING
from eosframework.spark.backfill.file_rows import failed_read, file_rows, pin
from eosframework.spark.job.job_entry import Files
from eosframework.spark.session.executors import failure_of, pack
from eosframework.spark.session.ordering import in_task_order
from eosframework.topology.graph.graph import Function, Graph, OnError, Source, SubTopology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.applications.spark_sinks import SinkWorld

PARTITIONS = 3


def day_of(value: dict[str, Any]) -> int:
    return int(value["day"]) * 1000


SOURCE = Source("s", "stands", STRING, JSON, Function("day_of", day_of), OnError())


def flight(row: dict[str, Any]) -> Record:
    headers = [("from", row["carrier"].encode())]
    return Record(row["carrier"].lower(), {"day": row["day"], "n": row["n"]}, row["day"], headers)


def files_of(spark: SparkSession, format: str, *paths: Path, **changes: Any) -> Files:
    options = changes.pop("options", {})
    pinned = pin(spark, format, [str(path) for path in paths], options)
    made: dict[str, Any] = {
        "format": format,
        "options": options,
        "key": "carrier",
        "partitions": PARTITIONS,
        "partitioner": "murmur2",
        "split_bytes": 1 << 26,
        "files": pinned,
        **changes,
    }
    return Files(**made)


def read(rows: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows.collect()]


def write_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


ROWS = [{"carrier": carrier, "day": day, "n": day * 2} for day, carrier in enumerate(["UA", "B6"])]


@pytest.mark.parametrize(
    "format", ["json", pytest.param("csv", marks=pytest.mark.exhaustive), "parquet"]
)
def test_a_row_of_each_format_is_a_record_with_its_columns(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    place = tmp_path / f"with space {{and}} [brackets].{format}"
    schema = "carrier string, day bigint, n bigint"
    options = {"schema": schema, "header": "true"} if format == "csv" else {}
    if format == "parquet":
        frame = spark.sql("SELECT * FROM VALUES ('UA', 0L, 0L), ('B6', 1L, 2L) AS t(carrier,day,n)")
        frame.coalesce(1).write.parquet(str(place))
    elif format == "csv":
        place.write_text("carrier,day,n\nUA,0,0\nB6,1,2\n")
    else:
        write_json(place, ROWS)

    found = read(
        file_rows(spark, "stands", files_of(spark, format, tmp_path, options=options), SOURCE)
    )

    assert [(one["offset"], one["order_time"], one["timestamp"]) for one in found] == [
        (0, 0, 0),
        (1, 1000, 1000),
    ]
    assert [json.loads(bytes(one["value"])) for one in found] == ROWS
    assert [bytes(one["key"]) for one in found] == [b"UA", b"B6"]
    assert [one["partition"] for one in found] == [
        partition_of(key, PARTITIONS) for key in (b"UA", b"B6")
    ]
    assert {(one["topic"], one["headers"]) for one in found} == {("stands", None)}


def test_directories_of_partitions_are_columns_and_keys_as_in_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With the types that Spark infers; also where a path begins below them."""
    days = ["2026-01-01", "2026-01-02"]
    for number, day in enumerate(days):
        write_json(tmp_path / f"day={day}" / "shop=a%3Ab" / f"{number}.json", [{"n": number}])
    expected = [{"n": n, "day": day, "shop": "a:b"} for n, day in enumerate(days)]
    spark_has = spark.read.json(str(tmp_path)).orderBy("n").collect()
    assert [json.loads(json.dumps(row.asDict(), default=str)) for row in spark_has] == expected

    in_order = Source(
        "s", "stands", STRING, JSON, Function("day_of", lambda it: it["n"]), OnError()
    )
    for path in (tmp_path, tmp_path / "day=*/shop=*"):
        found = read(file_rows(spark, "stands", files_of(spark, "json", path, key="day"), in_order))
        found.sort(key=lambda one: one["order_time"])
        assert [json.loads(bytes(one["value"])) for one in found] == expected
        assert [bytes(one["key"]).decode() for one in found] == days
        assert [one["partition"] for one in found] == [
            partition_of(day.encode(), PARTITIONS) for day in days
        ]

    below = {"basePath": str(tmp_path / f"day={days[0]}")}
    one_day = files_of(spark, "json", tmp_path / f"day={days[0]}", key="shop", options=below)
    [row] = read(file_rows(spark, "stands", one_day, in_order))
    assert json.loads(bytes(row["value"])) == {"n": 0, "shop": "a:b"}

    write_json(tmp_path / "stray.json", [{"n": 9}])
    with pytest.raises(
        ConfigurationError, match=r"columns day, shop below .*stray\.json has no pa"
    ):
        pin(spark, "json", [str(tmp_path)], {})
    assert 9 not in [row.n for row in spark.read.json(str(tmp_path)).collect()]  # Spark's silence


def test_a_function_makes_records_and_producers_partitioners_are_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_json(tmp_path / "a.json", [{**row, "place": 2} for row in ROWS])
    made = {"record": f"{__name__}:flight", "key": None}

    by_crc = files_of(spark, "json", tmp_path, partitioner="crc32", **made)
    by_column = files_of(spark, "json", tmp_path, partitioner="column:place", **made)
    found = read(file_rows(spark, "stands", by_crc, SOURCE))

    assert [bytes(one["key"]) for one in found] == [b"ua", b"b6"]
    assert [json.loads(bytes(one["value"])) for one in found] == [
        {"day": row["day"], "n": row["n"]} for row in ROWS
    ]
    assert [one["headers"] for one in found] == [
        [{"key": "from", "value": b"UA"}],
        [{"key": "from", "value": b"B6"}],
    ]
    assert [(one["timestamp"], one["order_time"]) for one in found] == [(0, 0), (1, 1000)]
    assert [one["partition"] for one in found] == [
        zlib.crc32(k) % PARTITIONS for k in (b"ua", b"b6")
    ]
    placed = read(file_rows(spark, "stands", by_column, SOURCE))
    assert [one["partition"] for one in placed] == [2, 2]


def test_rows_are_in_order_of_time_path_and_row_however_files_are_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = {
        name: [{"carrier": "UA", "day": (n * 7) % 5, "n": f"{name}{n}"} for n in range(200)]
        for name in ("a", "b")
    }
    for name, its in rows.items():
        write_json(tmp_path / f"{name}.json", its)
    graph = pack(Graph("app", (SubTopology("only", (SOURCE,), ()),)))
    expected = sorted(
        (row["day"], name, number, row["n"])
        for name, its in rows.items()
        for number, row in enumerate(its)
    )

    for split_bytes in (2000, 1 << 26):
        files = files_of(
            spark, "json", tmp_path, split_bytes=split_bytes, options={"schema": SCHEMA}
        )
        placed = file_rows(spark, "stands", files, SOURCE)
        assert (placed.rdd.getNumPartitions() > 4) == (split_bytes == 2000)
        found = read(in_task_order(spark, [placed], graph, "only", PARTITIONS))
        assert [json.loads(bytes(one["value"]))["n"] for one in found] == [n for *_, n in expected]
        assert {one["offset"] for one in found} == {None}


SCHEMA = "carrier string, day int, n string"


def test_patterns_and_folders_are_listed_without_what_spark_leaves_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("2024/a.json", "2024/deep/b.json", "2025/c.json", "2024/_SUCCESS", "2024/.hidden"):
        write_json(tmp_path / name, ROWS)

    def names(*patterns: str) -> list[str]:
        found = pin(spark, "json", [str(tmp_path / pattern) for pattern in patterns], {})
        return [file.path.rpartition(str(tmp_path))[2] for file in found]

    assert names("") == ["/2024/a.json", "/2024/deep/b.json", "/2025/c.json"]
    assert names("20*/?.json", "2025") == ["/2024/a.json", "/2025/c.json"]
    with pytest.raises(ConfigurationError, match=r"no file at .*2026"):
        names("2024", "2026")


def test_files_that_changed_or_are_gone_are_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    changed = write_json(tmp_path / "changed.json", ROWS)
    files = files_of(spark, "json", tmp_path)
    before = changed.stat()

    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns + 5_000_000_000))
    with pytest.raises(ConfigurationError, match=r"changed\.json.*it was written at \d+ and now"):
        file_rows(spark, "stands", files, SOURCE)

    write_json(changed, ROWS[:1])
    with pytest.raises(ConfigurationError, match=r"changed\.json.*it had \d+ bytes and has"):
        file_rows(spark, "stands", files, SOURCE)

    changed.unlink()
    with pytest.raises(ConfigurationError, match=r"changed\.json.*is gone since the job"):
        file_rows(spark, "stands", files, SOURCE)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param(
            '{"carrier": "UA", "n": 1}',
            "TypeError: int() argument",
            marks=pytest.mark.exhaustive,
        ),
        ('{"carrier": "UA"', 'cannot be read: {"carrier": "UA";'),
    ],
)
def test_a_row_that_is_no_record_is_named_with_its_file(
    spark: SparkSession, tmp_path: Path, line: str, said: str
) -> None:
    good = "".join(json.dumps({**row, "n": None}) + "\n" for row in ROWS)
    (tmp_path / "broken.json").write_text(good + line + "\n")
    options = {"schema": "carrier string, day int, n int"}

    files = files_of(spark, "json", tmp_path, options=options)
    with pytest.raises(Exception, match="eosframework-failure") as failed:
        file_rows(spark, "stands", files, SOURCE).collect()

    error = failure_of(failed.value)
    assert isinstance(error, RunError)
    assert f"row 2 of file:{tmp_path}/broken.json" in str(error)
    assert said in str(error)


def test_what_cannot_be_read_at_all_is_refused_before_any_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_json(tmp_path / "a.json", ROWS)
    timeless = Source("s", "stands", STRING, JSON, None, OnError())

    with pytest.raises(ConfigurationError, match="have no time"):
        file_rows(spark, "stands", files_of(spark, "json", tmp_path), timeless)
    with pytest.raises(ConfigurationError, match=r"no column 'airline'.*carrier, day, n"):
        file_rows(spark, "stands", files_of(spark, "json", tmp_path, key="airline"), SOURCE)
    with pytest.raises(ConfigurationError, match="no partitioner 'md5'"):
        file_rows(spark, "stands", files_of(spark, "json", tmp_path, partitioner="md5"), SOURCE)
    with pytest.raises(ConfigurationError, match=r"cannot read .* as parquet: \[FAILED_READ_FILE"):
        pin(spark, "parquet", [str(tmp_path)], {})
    (tmp_path / "a.csv").write_text("carrier,day\nUA,1\n")
    with pytest.raises(ConfigurationError, match=r"a\.csv as json: they have no columns"):
        pin(spark, "json", [str(tmp_path / "a.csv")], {})


def test_columns_of_csv_go_by_their_names_and_not_by_their_places(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("carrier,day\nUA,1\n")
    (tmp_path / "b.csv").write_text("day,carrier\n2,B6\n")
    files = files_of(spark, "csv", tmp_path, options={"header": "true"})

    with pytest.raises(Exception, match="CSV header does not conform to the schema") as failed:
        file_rows(spark, "stands", files, SOURCE).collect()
    assert re.search(
        r"file .*/[ab]\.csv cannot be read: CSV header", str(failed_read(failed.value))
    )


@pytest.mark.parametrize("format", ["parquet", pytest.param("json", marks=pytest.mark.exhaustive)])
def test_a_later_files_additional_column_is_in_the_rows(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    frame = spark.sql("SELECT 'UA' AS carrier, 1L AS day").coalesce(1)
    frame.write.format(format).save(str(tmp_path / "a"))
    frame.selectExpr("*", "2 AS gate").write.format(format).save(str(tmp_path / "b"))

    found = read(file_rows(spark, "stands", files_of(spark, format, tmp_path), SOURCE))
    found.sort(key=lambda one: one["writer"])  # the path of its file
    assert [json.loads(bytes(one["value"])) for one in found] == [
        {"carrier": "UA", "day": 1, "gate": None},
        {"carrier": "UA", "day": 1, "gate": 2},
    ]


def test_files_that_cannot_be_merged_are_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT 'UA' AS carrier, 1L AS day").coalesce(1)
    for name in "abd":
        frame.write.parquet(str(tmp_path / name))
    frame.selectExpr("carrier", "'1' AS day", "2 AS gate").write.parquet(str(tmp_path / "c"))
    with pytest.raises(
        ConfigurationError, match=r"/c/part\S+ has other .* day is bigint and string"
    ):
        pin(spark, "parquet", [str(tmp_path)], {})

    (tmp_path / "a.csv").write_text("carrier,day\nUA,1\n")
    (tmp_path / "b.csv").write_text("carrier,day,gate\nB6,2,3\n")
    options = {"header": "true", "mode": "DROPMALFORMED"}
    files = files_of(spark, "csv", tmp_path / "?.csv", options=options)
    with pytest.raises(Exception, match="FAILED_READ_FILE") as failed:
        file_rows(spark, "stands", files, SOURCE).collect()
    assert re.search(r"/[ab]\.csv cannot be read: Number of column", str(failed_read(failed.value)))


@pytest.mark.exhaustive
def test_rows_of_files_are_the_records_that_a_sink_writes(world: SinkWorld, tmp_path: Path) -> None:
    rows = world.spark.sql(
        "SELECT 3 AS day, 1.10BD AS price, CAST(0.1 AS FLOAT) AS rate, X'ff00' AS raw, "
        "TIMESTAMP_MICROS(1710037800000001) AS at, DATE'2024-03-10' AS local, -0.0D AS zero, "
        "'ü' AS text, map('a', 2.50BD) AS prices, CAST(NULL AS INT) AS nothing"
    ).coalesce(1)
    sink = world.sink(key="price", value="struct", shards=1)
    sink.write(rows, job="same", directory=str(world.checkpoint))
    [message] = world.read(world.topic)
    rows.write.parquet(str(tmp_path / "rows"))

    files = files_of(world.spark, "parquet", tmp_path / "rows", key="price")
    [found] = read(file_rows(world.spark, "stands", files, SOURCE))
    assert (bytes(found["key"]), bytes(found["value"])) == (message.key(), message.value())
    assert b'"price":1.10,' in bytes(found["value"])

    rows.selectExpr("day", "double('NaN') AS rate").write.parquet(str(tmp_path / "nan"))
    files = files_of(world.spark, "parquet", tmp_path / "nan", key="day")
    with pytest.raises(Exception, match="eosframework-failure") as failed:
        file_rows(world.spark, "stands", files, SOURCE).collect()
    assert re.search(r"row 0 of file:.*/nan/.* has NaN .* 'rate'", str(failure_of(failed.value)))
