"""What Kubernetes is given is valid, and keeps what workers rely on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from eosframework.config import Settings, load_settings
from tests.unit.deployment.files import DOCKER, kubernetes_objects, pods

OBJECTS = kubernetes_objects()


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [o for o in OBJECTS if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("found", OBJECTS, ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_every_object_is_valid(found: dict[str, Any]) -> None:
    kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)


def test_a_pod_keeps_its_name_and_its_stores() -> None:
    workers = named("StatefulSet", "flights")["spec"]
    [container] = workers["template"]["spec"]["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    instance = variables["EOS_WORKER__INSTANCE"]["valueFrom"]
    assert instance == {"fieldRef": {"fieldPath": "metadata.name"}}
    [claim] = workers["volumeClaimTemplates"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == "/var/lib/eosframework"
    assert workers["serviceName"] == named("Service", workers["serviceName"])["metadata"]["name"]


@pytest.mark.parametrize("kind", ["PodDisruptionBudget", "Service"])
@pytest.mark.parametrize(
    ("maker", "name"), [("StatefulSet", "flights"), ("Deployment", "flights-relay")]
)
def test_budgets_and_services_find_their_pods(kind: str, maker: str, name: str) -> None:
    labels = named(maker, name)["spec"]["template"]["metadata"]["labels"]
    selector = named(kind, name)["spec"]["selector"]
    assert selector.get("matchLabels", selector).items() <= labels.items()


@pytest.mark.parametrize(("name", "pod"), list(pods()), ids=lambda value: str(value)[:20])
def test_pods_are_nobody_special(name: str, pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"], name
    assert pod["automountServiceAccountToken"] is False
    # A Service of a name that begins with eos would set variables that look like settings.
    assert pod["enableServiceLinks"] is False
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
    for volume in pod["volumes"]:
        # Without a limit, what is written to /tmp fills the node's disk and evicts other pods.
        assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}), volume["name"]


@pytest.mark.parametrize(
    ("maker", "name"), [("StatefulSet", "flights"), ("Deployment", "flights-relay")]
)
def test_what_runs_on_is_probed_and_given_time_to_stop(maker: str, name: str) -> None:
    pod = named(maker, name)["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > Settings().worker.stop_deadline_seconds + 10
    [container] = pod["containers"]
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        how = container[probe]
        asked = how["httpGet"]["path"] if "httpGet" in how else how["exec"]["command"][-1]
        assert asked == path


def test_no_secret_is_in_the_files_or_in_variables() -> None:
    assert not [found for found in OBJECTS if found["kind"] == "Secret"]
    for _, pod in pods():
        for container in pod["containers"]:
            assert "envFrom" not in container
            assert not re.search("secretKeyRef|DSN|PASSWORD", str(container["env"]))


@pytest.mark.parametrize(("name", "pod"), list(pods()), ids=lambda value: str(value)[:20])
def test_secrets_are_files_that_the_program_reads(
    name: str, pod: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [container] = pod["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    [mount] = [m for m in container["volumeMounts"] if m["name"] == "secrets"]
    assert mount["mountPath"] == variables["EOS_SECRETS_DIR"]
    assert mount["readOnly"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "secrets"]
    # The kubelet gives the files to root and to the group of the pod.
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]

    for item in volume["secret"]["items"]:
        (tmp_path / item["path"]).write_text("postgresql://database/flights")
        (tmp_path / item["path"]).chmod(volume["secret"]["defaultMode"])
    tmp_path.chmod(0o755)
    monkeypatch.setenv("EOS_SECRETS_DIR", str(tmp_path))
    assert load_settings().database.dsn is not None, name


def test_every_file_is_applied() -> None:
    folder = DOCKER / "kubernetes"
    applied = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert {*applied, "kustomization.yaml"} == {file.name for file in folder.iterdir()}
