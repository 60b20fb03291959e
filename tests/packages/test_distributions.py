"""The wheel in a clean environment outside the repository, as a package index delivers it."""

from __future__ import annotations

import re
import shutil
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from trove_classifiers import classifiers as known_classifiers

from eosframework.embedded.jars import SPARK_CONNECTORS
from tests.support.processes.environments import CleanEnvironment, build
from tests.support.processes.programs import REPOSITORY

MOST_MEGABYTES = 55
"""The limit of `pip install eosframework`, without byte code."""

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(distributions: tuple[Path, Path]) -> Path:
    return distributions[0]


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(opened.read(name).decode())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    """The wheel without extras, with an application in its directory."""
    environment = CleanEnvironment.make(tmp_path_factory.mktemp("clean"))
    environment.install_locked(wheel)
    shutil.copy(REPOSITORY / "examples" / "wordcount" / "wordcount.py", environment.work)
    return environment


def test_the_metadata_say_what_it_is(metadata: Message) -> None:
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "Apache-2.0 AND EPL-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Author"]
    assert "kafka" in metadata["Keywords"]
    stated = metadata.get_all("Classifier", [])
    assert stated
    assert set(stated) <= set(known_classifiers)


def test_the_readme_links_to_nothing_that_an_index_does_not_have(metadata: Message) -> None:
    text = str(metadata.get_payload())
    assert text.lstrip().startswith("# eosframework")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    assert [target for target in targets if not target.startswith("https://")] == []


def test_what_the_readme_names_is_in_the_source_distribution(
    distributions: tuple[Path, Path],
) -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    with tarfile.open(distributions[1]) as opened:
        paths = {name.partition("/")[2] for name in opened.getnames()}
    folders = {str(parent) for path in paths for parent in Path(path).parents}
    linked = set(re.findall(r"\]\((?!https?:|#)([^)#]+)", readme))
    assert len(linked) > 10
    assert linked <= paths | folders


def test_the_wheel_has_its_license_its_data_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {name.split("/")[0].removesuffix(".dist-info") for name in names} == {
        "eosframework",
        f"eosframework-{PROJECT['version']}",
    }
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "eosframework/py.typed" in names
    unusual = [file for file in files_of_the_package() if file.suffix not in (".py", ".pyc")]
    assert len(unusual) > 10  # SQL, tables and locks
    assert {str(file.relative_to(REPOSITORY)) for file in unusual} <= set(names)


def files_of_the_package() -> Sequence[Path]:
    return [file for file in (REPOSITORY / "eosframework").rglob("*") if file.is_file()]


@pytest.mark.parametrize("page", ["README.md", "docs/start/install.md"])
def test_every_extra_is_in_the_table_of_a_page(page: str) -> None:
    shown = re.findall(r"^\| `(\w+)` \|", (REPOSITORY / page).read_text("utf-8"), re.MULTILINE)
    assert set(shown) == set(PROJECT["optional-dependencies"]) - {"dev"}


def test_a_package_whose_internals_are_used_is_held_to_its_minor_version() -> None:
    vendor = REPOSITORY / "eosframework" / "kafka" / "inspect" / "vendor.py"
    assert "import kafka.net." in vendor.read_text(encoding="utf-8")
    [wanted] = [one for one in PROJECT["dependencies"] if one.startswith("kafka-python")]
    lowest, highest = re.findall(r"[<>]=?(\d+)\.(\d+)", wanted)
    assert (highest[0], int(highest[1])) == (lowest[0], int(lowest[1]) + 1)


def test_each_spark_with_a_locked_connector_is_allowed_by_the_extra_and_tested() -> None:
    [wanted] = [
        requirement
        for requirement in map(Requirement, PROJECT["optional-dependencies"]["spark"])
        if requirement.name == "pyspark"
    ]
    folder = REPOSITORY / "requirements"
    locks = [*folder.glob("spark-*.lock"), folder / "dev.lock"]
    tested = [re.search(r"^pyspark==(\S+)", lock.read_text(), re.M) for lock in locks]
    versions = [found[1] for found in tested if found]
    assert len(versions) == len(locks)
    assert all(version in wanted.specifier for version in versions)
    assert f"<={max(versions)}" in str(wanted.specifier), "pip installs the one of `make test`"
    assert {version.rpartition(".")[0] for version in versions} == set(SPARK_CONNECTORS)


def test_outside_the_repository_it_says_its_version_helps_and_lints(
    installed: CleanEnvironment,
) -> None:
    assert installed.eosframework("--version").out.strip() == PROJECT["version"]
    assert "run-worker" in installed.eosframework("--help").out
    found = installed.eosframework("lint", "wordcount.py", "--json").json
    assert (found["errors"], found["warnings"]) == (0, 0)
    shown = installed.run("python", "-c", "import eosframework; print(eosframework.__file__)")
    assert shown.out.startswith(str(installed.root))
    told = installed.eosframework("explain", "page", "growing-partitions").out
    assert told == (REPOSITORY / "docs/howto/growing-partitions.md").read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_a_command_without_its_extra_names_the_extra(installed: CleanEnvironment) -> None:
    settings = ("--set", "database.dsn=postgresql://127.0.0.1:1/none")
    for extra, *arguments in (
        ("embedded", "broker", "up"),
        ("embedded", "database", "up"),
        ("demo", "demo", "flights"),
        ("web", "console", "wordcount.py"),
        ("postgres", "relay-outbox", "--until-caught-up", *settings),
        ("spark", "backfill", "run", "wordcount.py", "--job", "past"),
    ):
        done = installed.run("eosframework", *arguments)
        assert done.exit_code == 2, (arguments, done.out, done.err)
        assert f"pip install 'eosframework[{extra}]'" in done.error, arguments


def test_it_stays_small(installed: CleanEnvironment) -> None:
    assert installed.megabytes() < MOST_MEGABYTES
    assert not installed.names() & {"numpy", "pandas", "pyarrow", "pyspark", "sqlalchemy"}
