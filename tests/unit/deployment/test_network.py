"""The NetworkPolicies let through what pods need, and nothing else.

They are evaluated here by the rules of the Kubernetes documentation: a pod that a policy selects is
isolated in the directions of its policyTypes, and what any of its policies allows is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from tests.unit.deployment.files import DOCKER, kubernetes_objects

OWN_NAMESPACE = "default"
POLICIES = [found for found in kubernetes_objects() if found["kind"] == "NetworkPolicy"]
MAKERS = [found for found in kubernetes_objects() if "template" in found.get("spec", {})]
SERVING = [maker for maker in MAKERS if maker["kind"] in ("StatefulSet", "Deployment")]


@dataclass(frozen=True)
class Peer:
    namespace: str = OWN_NAMESPACE
    labels: Mapping[str, str] = field(default_factory=dict)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return True


def is_meant(selectors: Mapping[str, Any], peer: Peer) -> bool:
    assert set(selectors) <= {"podSelector", "namespaceSelector"}
    namespace = {"kubernetes.io/metadata.name": peer.namespace}
    if "namespaceSelector" in selectors:
        in_namespace = selects(selectors["namespaceSelector"], namespace)
    else:
        in_namespace = peer.namespace == OWN_NAMESPACE
    return in_namespace and selects(selectors.get("podSelector", {}), peer.labels)


def is_allowed(
    direction: str, labels: Mapping[str, str], peer: Peer, port: int, protocol: str = "TCP"
) -> bool:
    """Whether a pod of this namespace with these labels is connected with a peer at a port."""
    isolating = [
        policy["spec"]
        for policy in POLICIES
        if selects(policy["spec"]["podSelector"], labels)
        and direction in policy["spec"]["policyTypes"]
    ]
    side = {"Ingress": "from", "Egress": "to"}[direction]
    rules = [rule for spec in isolating for rule in spec.get(direction.lower(), ())]
    return not isolating or any(
        (side not in rule or any(is_meant(each, peer) for each in rule[side]))
        and ("ports" not in rule or {"protocol": protocol, "port": port} in rule["ports"])
        for rule in rules
    )


def labels_of(maker: Mapping[str, Any]) -> dict[str, str]:
    return maker["spec"]["template"]["metadata"]["labels"]


def kafka_port() -> int:
    [config_map] = yaml.safe_load_all((DOCKER / "kubernetes" / "settings.yaml").read_text())
    settings = yaml.safe_load(config_map["data"]["settings.yaml"])
    return int(settings["kafka"]["bootstrap_servers"].rpartition(":")[2])


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker["metadata"]["name"])
def test_a_pod_reaches_brokers_database_and_names_and_nothing_else(maker: dict[str, Any]) -> None:
    labels = labels_of(maker)
    for port in (kafka_port(), 5432):
        assert is_allowed("Egress", labels, Peer(), port)
        assert not is_allowed("Egress", labels, Peer("elsewhere"), port)
    for protocol in ("TCP", "UDP"):
        assert is_allowed("Egress", labels, Peer("kube-system"), 53, protocol)
    for peer in (Peer(), Peer("kube-system"), Peer("elsewhere")):
        for port in (22, 80, 443, 6443, 8080):
            assert not is_allowed("Egress", labels, peer, port), (peer, port)


@pytest.mark.parametrize("maker", SERVING, ids=lambda maker: maker["metadata"]["name"])
def test_every_http_port_is_reached_by_what_scrapes_and_by_nothing_else(
    maker: dict[str, Any],
) -> None:
    labels = labels_of(maker)
    [container] = maker["spec"]["template"]["spec"]["containers"]
    ports = [port["containerPort"] for port in container["ports"]]
    assert ports
    for port in ports:
        assert is_allowed("Ingress", labels, Peer("monitoring"), port)
        for peer in (Peer(), Peer(labels=labels), Peer("elsewhere")):
            assert not is_allowed("Ingress", labels, peer, port)
    assert not is_allowed("Ingress", labels, Peer("monitoring"), 22)


def test_a_job_is_reached_by_nobody() -> None:
    [job] = [maker for maker in MAKERS if maker["kind"] == "Job"]
    for peer in (Peer(), Peer("monitoring"), Peer("elsewhere")):
        assert not is_allowed("Ingress", labels_of(job), peer, 8080)


def test_pods_of_others_are_left_alone() -> None:
    others = {"app.kubernetes.io/name": "kafka"}
    assert is_allowed("Ingress", others, Peer("elsewhere"), 9092)
    assert is_allowed("Egress", others, Peer("elsewhere"), 443)
