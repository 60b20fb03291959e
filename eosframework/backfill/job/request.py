"""What a user asks a backfill to do, as it was written; the job's entry keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from eosframework.errors import ConfigurationError

FORMATS = ("parquet", "json", "csv")


@dataclass(frozen=True, slots=True)
class FileRequest:
    """Files that are to stand for a source topic; see `job.Files`.

    Args:
        options: Spark's for reading them, each NAME=VALUE.
    """

    topic: str
    format: str
    paths: tuple[str, ...]
    key: str | None = None
    record: str | None = None
    partitioner: str = "murmur2"
    options: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> FileRequest:
        """Return what `--source TOPIC=FORMAT:PATH,…` says; NAME=VALUE pairs may follow a `;`.

        Raises:
            ConfigurationError: it is not of that form.
        """
        place, *settings = text.split(";")
        topic, equals, rest = place.partition("=")
        format_, colon, paths = rest.partition(":")
        if not (topic and equals and colon and paths) or format_ not in FORMATS:
            raise ConfigurationError(
                f"{text!r} is no source; expected TOPIC=FORMAT:PATH with a format of "
                f"{', '.join(FORMATS)}, and behind ';' what else is to be said, for example "
                f"'flights.raw=csv:history/*.csv;key=carrier;option.header=true'"
            )
        given = dict(_setting(one, text) for one in settings)
        options = {name: value for name, value in given.items() if name.startswith("option.")}
        known = {name: value for name, value in given.items() if name not in options}
        if unknown := sorted(known.keys() - {"key", "record", "partitioner"}):
            raise ConfigurationError(
                f"{text!r}: {unknown[0]!r} is no setting of a source; expected key, record, "
                f"partitioner or option.NAME"
            )
        return cls(
            topic,
            format_,
            tuple(paths.split(",")),
            options=tuple(f"{n.removeprefix('option.')}={v}" for n, v in options.items()),
            **known,
        )

    @property
    def spark_options(self) -> dict[str, str]:
        """The options by name."""
        pairs = (option.partition("=") for option in self.options)
        return {name: value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Request:
    """What to read and where to.

    Args:
        start: where ranges begin; see `ranges`.
        end: where they end.
        source: files that stand for topics, as `FileRequest.parse` takes them.
        live_from: where live workers are to begin in topics for which files stand.
        suffix: behind the names of what is written; empty or one.
    """

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    live_from: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()

    def written(self) -> dict[str, tuple[str, ...]]:
        """Return what was given, by name."""
        given = {field.name: tuple(getattr(self, field.name)) for field in fields(self)}
        return {name: value for name, value in given.items() if value}

    @property
    def files(self) -> list[FileRequest]:
        """The sources that are files.

        Raises:
            ConfigurationError: one is not of the form, or two stand for one topic.
        """
        found = [FileRequest.parse(text) for text in self.source]
        topics = [one.topic for one in found]
        if twice := sorted({topic for topic in topics if topics.count(topic) > 1}):
            raise ConfigurationError(
                f"topic {twice[0]!r} is given files twice; list all paths in one, separated by ','"
            )
        return found


def request_differences(
    before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return which of what is asked for now was asked for differently when the job started.

    What is not said now is as it was.
    """
    changed = (name for name in now if tuple(before.get(name, ())) != tuple(now[name]))
    return [
        f"{_OPTIONS[name]} {_shown(now[name])} instead of {_shown(before.get(name, ()))}"
        for name in sorted(changed)
    ]


_OPTIONS = {
    "start": "--from",
    "end": "--to",
    "source": "--source",
    "live_from": "--live-from",
    "suffix": "--suffix",
}


def _shown(values: Iterable[str]) -> str:
    return " ".join(values) or "(nothing)"


def _setting(text: str, whole: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise ConfigurationError(f"{whole!r}: {text!r} is no NAME=VALUE")
    return name.strip(), value
