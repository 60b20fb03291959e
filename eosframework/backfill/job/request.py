"""The user's request for a backfill, recorded in the job's entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from eosframework.errors import ConfigurationError

FORMATS = ("parquet", "json", "csv")


@dataclass(frozen=True, slots=True)
class FileRequest:
    """Files to replace a source topic; see `Files`.

    Args:
        options: of Spark for reading them, each NAME=VALUE.
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
        """Parse `--source TOPIC=FORMAT:PATH,…`; NAME=VALUE pairs may follow after `;`.

        Raises:
            ConfigurationError: the argument has another form.
        """
        place, *settings = text.split(";")
        topic, equals, rest = place.partition("=")
        format_, colon, paths = rest.partition(":")
        if not (topic and equals and colon and paths) or format_ not in FORMATS:
            raise ConfigurationError(
                f"{text!r} is not a source; expected TOPIC=FORMAT:PATH with a format of "
                f"{', '.join(FORMATS)}, and further settings after ';', for example "
                f"'flights.raw=csv:history/*.csv;key=carrier;option.header=true'"
            )
        given = dict(_setting(one, text) for one in settings)
        options = {name: value for name, value in given.items() if name.startswith("option.")}
        known = {name: value for name, value in given.items() if name not in options}
        if unknown := sorted(known.keys() - {"key", "record", "partitioner"}):
            raise ConfigurationError(
                f"{text!r}: {unknown[0]!r} is not a setting of a source; expected key, record, "
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
    """The arguments of a job.

    Args:
        start: begins of ranges; see `ranges`.
        end: ends of ranges.
        source: files that replace topics, as `FileRequest.parse` takes them.
        live_from: starts of live workers in topics replaced by files.
        suffix: of the names of outputs; empty or one.
    """

    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    live_from: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()

    def written(self) -> dict[str, tuple[str, ...]]:
        """Return the given arguments, by name."""
        given = {field.name: tuple(getattr(self, field.name)) for field in fields(self)}
        return {name: value for name, value in given.items() if value}

    @property
    def files(self) -> list[FileRequest]:
        """The sources that are files.

        Raises:
            ConfigurationError: one has another form, or two replace one topic.
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
    """Return the arguments that differ from those of the job's start.

    Missing arguments default to those of the start.
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
        raise ConfigurationError(f"{whole!r}: {text!r} is not NAME=VALUE")
    return name.strip(), value
