"""Tables show what kubectl is known to show."""

from datetime import UTC, datetime

import pytest

from sandbox.api.discovery import table
from sandbox.api.resources import Catalogue, custom_types

NOW = datetime(2026, 1, 2, tzinfo=UTC)
KINDS = {kind.resource: kind for kind in Catalogue()}


def cells(kind, obj):
    found = table(kind, [obj], NOW, metadata={})
    return dict(zip([c["name"] for c in found["columnDefinitions"]], found["rows"][0]["cells"], strict=True))


def pod(phase="Running", metadata=None, **status):
    return {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T23:59:00Z", **(metadata or {})},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "nodeName": "n"},
        "status": {"phase": phase, "containerStatuses": [{"ready": True, "restartCount": 2}], **status},
    }


def test_a_pod_shows_its_containers_and_age():
    shown = cells(KINDS["pods"], pod())
    assert (shown["Ready"], shown["Status"], shown["Restarts"], shown["Age"]) == ("1/2", "Running", 2, "60s")
    assert (shown["Node"], shown["IP"]) == ("n", "<none>")


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "Terminating"),
        (pod("Failed", reason="UnexpectedAdmissionError"), "UnexpectedAdmissionError"),
        (pod("Succeeded"), "Completed"),
    ],
)
def test_a_pods_status_is_the_word_that_people_know(found, word):
    assert cells(KINDS["pods"], found)["Status"] == word


@pytest.mark.parametrize(
    ("created", "age"),
    [
        ("2026-01-01T23:00:00Z", "60m"),
        ("2026-01-01T10:00:00Z", "14h"),
        ("2025-12-01T00:00:00Z", "32d"),
        ("2026-01-03T00:00:00Z", "0s"),
        ("soon", "<invalid>"),
        (None, "<unknown>"),
    ],
)
def test_an_age_is_short(created, age):
    assert cells(KINDS["configmaps"], {"metadata": {"name": "c", "creationTimestamp": created}})["Age"] == age


def test_a_custom_resource_shows_the_columns_of_its_definition():
    columns = [{"name": "Weight", "type": "integer", "jsonPath": ".spec.weight"}]
    version = {"name": "v1", "served": True, "additionalPrinterColumns": columns}
    (kind,) = custom_types({"spec": {"group": "g.io", "names": {"kind": "Q", "plural": "qs"}, "versions": [version]}})
    assert cells(kind, {"metadata": {"name": "q"}, "spec": {"weight": 3}}) == {"Name": "q", "Weight": 3}
