"""The bill of materials: CycloneDX JSON of locked packages, jars and vendored files.

`python -m tests.support.documents.bill_of_materials` writes
requirements/bill-of-materials.cdx.json. It holds no time and no random number,
so equal locks give equal bytes.
"""

# The library's decorators hide its constructors from type checkers.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

from eosframework.embedded.jars import parse_lock
from tests.support.documents.vendored import LICENSES, VENDORED

REPOSITORY = Path(__file__).parents[3]
BILL = REPOSITORY / "requirements" / "bill-of-materials.cdx.json"
PACKAGES = REPOSITORY / "requirements" / "users.lock"
JARS = REPOSITORY / "eosframework" / "embedded"

_NAME_ONLY_GROUPS = {
    "commons-beanutils",
    "commons-collections",
    "commons-digester",
    "commons-logging",
    "commons-validator",
}
_GROUPS = {
    "at.yawk.lz4": r"lz4-java",
    "com.dynatrace.hash4j": r"hash4j",
    "com.fasterxml.jackson.core": r"jackson-(annotations|core|databind)",
    "com.fasterxml.jackson.dataformat": r"jackson-dataformat-\w+",
    "com.fasterxml.jackson.datatype": r"jackson-datatype-\w+",
    "com.github.ben-manes.caffeine": r"caffeine",
    "com.github.luben": r"zstd-jni",
    "com.google.re2j": r"re2j",
    "com.typesafe.scala-logging": r"scala-logging_[\d.]+",
    "com.yammer.metrics": r"metrics-core",
    "net.sf.jopt-simple": r"jopt-simple",
    "net.sourceforge.argparse4j": r"argparse4j",
    "org.apache.commons": r"commons-pool2",
    "org.apache.kafka": r"kafka(-[a-z-]+|_[\d.]+)",
    "org.apache.logging.log4j": r"log4j-[a-z0-9-]+",
    "org.apache.spark": r"spark-[a-z-]+(0-10)?_[\d.]+",
    "org.bitbucket.b_c": r"jose4j",
    "org.hdrhistogram": r"HdrHistogram",
    "org.jspecify": r"jspecify",
    "org.pcollections": r"pcollections",
    "org.scala-lang": r"scala-(library|reflect)",
    "org.slf4j": r"slf4j-api",
    "org.xerial.snappy": r"snappy-java",
    "org.yaml": r"snakeyaml",
}
"""Maven's group by the names of its artifacts: a lock of jars names files only."""

_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d+(\.\d+)+(-\d+)?)\.jar")
_ROOT = "eosframework"


@dataclass(frozen=True)
class Package:
    """A package of a lock.

    Args:
        marker: the environments that install it; None: all.
        wanted_by: names of the packages that depend on it.
    """

    name: str
    version: str
    marker: str | None
    wanted_by: tuple[str, ...]


def read_packages(lock: str) -> list[Package]:
    """Return the packages of a lock that `uv pip compile` wrote.

    Raises:
        ValueError: a line is not of that form.
    """
    entries: list[tuple[str, list[str]]] = []
    for line in lock.splitlines():
        if not line.startswith((" ", "#")):
            entries.append((line, []))
        elif found := re.match(r" +# +(?:via\b *)?(\S*)", line):
            entries[-1][1].append(found[1])
        elif not re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line):
            raise ValueError(f"the lock holds {line!r}; expected a package, a sha256 or its origin")
    return [_package(line, origins) for line, origins in entries]


def _package(line: str, origins: list[str]) -> Package:
    requirement = Requirement(line.removesuffix("\\"))
    pins = list(requirement.specifier)
    if len(pins) != 1 or pins[0].operator != "==":
        raise ValueError(f"the lock holds {line!r}; expected NAME==VERSION")
    marker = str(requirement.marker) if requirement.marker else None
    # `-c FILE` is a constraint and wants nothing.
    wanted_by = tuple(name for name in origins if name and name != "-c")
    return Package(requirement.name, pins[0].version, marker, wanted_by)


def coordinates(jar: str) -> tuple[str, str, str]:
    """Return group, name and version of a jar in Maven's words, by the name of its file.

    Raises:
        ValueError: the name has no version, or its group is not known.
    """
    found = _JAR.fullmatch(jar)
    if found is None:
        raise ValueError(f"the jar {jar!r} has no version in its name")
    name, version = found["name"], found["version"]
    if name in _NAME_ONLY_GROUPS:
        return name, name, version
    for group, names in _GROUPS.items():
        if re.fullmatch(names, name):
            return group, name, version
    raise ValueError(f"the group of the jar {jar!r} is not known; add it to _GROUPS")


def _component_of(package: Package) -> Component:
    url = PackageURL("pypi", None, package.name, package.version)
    marker = [Property(name="eosframework:marker", value=package.marker)] if package.marker else []
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        purl=url,
        bom_ref=str(url),
        properties=marker,
    )


def _jar_components() -> list[Component]:
    """Return each jar once, with the names of all locks that contain it."""
    found: dict[tuple[str, str], list[str]] = {}
    for lock in sorted(JARS.glob("*.lock")):
        for jar in parse_lock(lock.read_text(encoding="ascii")).items():
            found.setdefault(jar, []).append(lock.name)
    return [_component_of_jar(*jar, locks) for jar, locks in sorted(found.items())]


def _component_of_jar(jar: str, digest: str, locks: Iterable[str]) -> Component:
    group, name, version = coordinates(jar)
    url = PackageURL("maven", group, name, version)
    return Component(
        type=ComponentType.LIBRARY,
        group=group,
        name=name,
        version=version,
        purl=url,
        bom_ref=str(url),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        properties=[Property(name="eosframework:lock", value=lock) for lock in locks],
    )


def _vendored_components() -> list[Component]:
    """Return the npm packages of which the repository has files."""
    found = sorted({(file.package, file.version) for file in VENDORED.values()})
    return [
        Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=version,
            purl=PackageURL("npm", None, name, version),
            bom_ref=f"pkg:npm/{name}@{version}",
            licenses=[DisjunctiveLicense(id=LICENSES[name])],
        )
        for name, version in found
    ]


def bill_of_materials() -> str:
    """Return the bill for the locks of this repository, as indented JSON."""
    project: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    root = Component(
        type=ComponentType.FRAMEWORK,
        name=_ROOT,
        version=project["version"],
        bom_ref=_ROOT,
        licenses=[LicenseExpression(project["license"])],
    )
    packages = read_packages(PACKAGES.read_text(encoding="utf-8"))
    jars = [*_jar_components(), *_vendored_components()]
    # Other environments may have another version of a package.
    components: dict[str, list[Component]] = {}
    wanted: dict[str, list[Component]] = {}
    for package in packages:
        component = _component_of(package)
        components.setdefault(package.name, []).append(component)
        for other in package.wanted_by:
            wanted.setdefault(other, []).append(component)
    bill = Bom(components=[*chain(*components.values()), *jars])
    bill.metadata.component = root
    bill.register_dependency(root, [*wanted.pop(_ROOT), *jars])
    for name, dependencies in wanted.items():
        for component in components[name]:
            bill.register_dependency(component, dependencies)
    # A time and a random number would differ with each run.
    bill.metadata.timestamp = None
    bill.serial_number = None
    return JsonV1Dot6(bill).output_as_string(indent=1) + "\n"


def main() -> None:
    """Write the bill."""
    BILL.write_text(bill_of_materials(), encoding="utf-8")


if __name__ == "__main__":
    main()
