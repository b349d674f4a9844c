"""What overlays add: who else assigns cards, and whose configuration is believed."""

import copy
import re
from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from controller import config as controller_config
from core.settings import CONTROLLER_ACCOUNT, AdmissionSettings, Settings
from tests.support.devices.texts import TRUSTED_ACCOUNTS, decode_settings
from tests.support.pages.shipped import DEPLOY, MUTATING, VALIDATING, Json, container, entries, one, policy, words
from webhook import options as webhook_options


def patched(document: Json, operations: Iterable[Json]) -> Json:
    """*document* after JSON patch operations."""
    found: Any = copy.deepcopy(document)
    for each in operations:
        *way, last = [int(part) if part.isdigit() else part for part in each["path"].strip("/").split("/")]
        place = found
        for part in way:
            place = place[part]
        if each["op"] == "test":
            assert place[last] == each["value"], each
        elif each["op"] == "add":
            place.insert(last, each["value"])
        else:
            assert (each["op"], last in place) == ("replace", True), each
            place[last] = each["value"]
    return dict(found)


def installed(overlay: str, kind: str, name: str) -> Json:
    """An object as an overlay has it."""
    kustomization = yaml.safe_load((DEPLOY / "overlays" / overlay / "kustomization.yaml").read_text())
    below = kustomization["resources"][0].removeprefix("../")
    found = installed(below, kind, name) if below in OVERLAYS else one(kind, name)
    for patch in kustomization["patches"]:
        target = patch.get("target", {"kind": "", "name": ""})
        if target["kind"] == kind and re.fullmatch(target["name"], name) and "patch" in patch:
            found = patched(found, yaml.safe_load(patch["patch"]))
        if patch.get("path") == "settings.yaml" and name == "cardshare-settings":
            (found,) = yaml.safe_load_all((DEPLOY / "overlays" / overlay / "settings.yaml").read_text())
    return found


OVERLAYS = sorted(path.name for path in (DEPLOY / "overlays").iterdir())
HAMI = {"hami-scheduler": "system:serviceaccount:kube-system:hami-scheduler"}
VOLCANO = {"volcano": "system:serviceaccount:volcano-system:volcano-scheduler"}


@pytest.mark.parametrize(
    ("overlay", "placed", "others"),
    [
        ("default", ["cardshare"], HAMI),
        ("volcano-name", ["cardshare", "volcano"], HAMI),
        ("beside-volcano", ["cardshare"], HAMI | VOLCANO),
    ],
)
def test_an_overlay_says_who_assigns_cards_beside_us_to_webhook_conditions_and_policies_alike(
    overlay: str, placed: list[str], others: dict[str, str]
):
    settings = decode_settings(installed(overlay, "ConfigMap", "cardshare-settings")["data"]["cardshare.yaml"])
    expected = Settings(scheduler_names=tuple(placed), admission=AdmissionSettings(other_schedulers=others))
    assert settings == expected
    for name in ("pods.cardshare.io", "bindings.cardshare.io"):
        judges = installed(overlay, "ValidatingAdmissionPolicy", name)["spec"]
        assert dict(entry.split("=", 1) for entry in entries(judges, "schedulerAccounts")) == others
        judges["variables"][2]["expression"] = "[]"
        assert judges == policy(name)
    for kind in (MUTATING, VALIDATING):
        found = installed(overlay, kind, "cardshare")["webhooks"]
        (update,) = [each for each in found if each["name"] == "update.pods.cardshare.io"]
        (condition,) = [each for each in update["matchConditions"] if each["name"] == "writer-is-not-its-scheduler"]
        expression = condition["expression"]
        pairs = re.findall(
            r"username == '([^']+)'\s*&& oldObject.spec.\?schedulerName.orValue\(''\) == '([^']+)'", expression
        )
        assert {scheduler: account for account, scheduler in pairs} == others
        assert len(pairs) * 2 == len(re.findall("==", expression))
        assert expression.startswith("!(")
        update["matchConditions"].remove(condition)
        for each in [each for each in found if each["name"] == "bind.pods.cardshare.io"]:
            found_names = words(each["matchConditions"][0]["expression"])
            assert found_names == {CONTROLLER_ACCOUNT, *others.values()}
            each["matchConditions"][0] = one(kind, "cardshare")["webhooks"][3]["matchConditions"][0]
        assert found == one(kind, "cardshare")["webhooks"]


def test_nobody_beside_us_assigns_cards_unreviewed_where_no_overlay_says_so():
    for kind in (MUTATING, VALIDATING):
        for each in one(kind, "cardshare")["webhooks"]:
            for condition in each.get("matchConditions", ()):
                found = {word for word in words(condition["expression"]) if word.startswith("system:serviceaccount:")}
                assert found <= {account.removesuffix("*") for account in TRUSTED_ACCOUNTS}, condition["name"]


def test_no_account_is_believed_of_a_namespace_that_a_tenant_could_make():
    for account in TRUSTED_ACCOUNTS:
        assert account.split(":")[2] in {"kube-system", "cardshare-system"}


@pytest.mark.parametrize(
    ("folder", "trusted"),
    [
        ("default", {"kube-system"}),
        ("volcano-name", {"kube-system", "volcano-system"}),
        ("beside-volcano", {"kube-system", "volcano-system"}),
    ],
)
def test_only_an_overlay_says_whose_configuration_is_believed_and_both_processes_believe_the_same(
    folder: str, trusted: set[str]
):
    name = "CARDSHARE_TRUST_NAMESPACES"
    patch = yaml.safe_load((DEPLOY / "overlays" / folder / "trust.yaml").read_text())
    for deployment in ("cardshare-controller", "cardshare-webhook"):
        environ = {each["name"]: each.get("value", "") for each in container(f"Deployment {deployment}")["env"]}
        assert controller_config.parse([], {name: environ[name]}).trusted == frozenset()
        found = patched(one("Deployment", deployment), patch)
        (set_here,) = [
            each["value"] for each in found["spec"]["template"]["spec"]["containers"][0]["env"] if each["name"] == name
        ]
        assert controller_config.parse([], {name: set_here}).trusted == trusted
        assert webhook_options.parse(["--cert-dir", "c"], {name: set_here}).trusted == trusted
    listed = yaml.safe_load((DEPLOY / "overlays" / folder / "kustomization.yaml").read_text())["patches"]
    target = {"kind": "Deployment", "name": "cardshare-(controller|webhook)"}
    assert {"path": "trust.yaml", "target": target} in listed
