"""Accounts have the rights that are used and no others; so have those of what is applied beside."""

import pytest
import yaml

from controller.config import Config
from controller.documents import places
from controller.reporting.serve import EXPLAIN, HELD, HISTORY, HISTORY_OF_PODS, PREVIEW, SIMULATE
from core.catalog import standard_catalog
from core.configuration import SCHEDULER_MAP, hami_map
from core.settings import Settings
from tests.support.pages.shipped import DEPLOY, NAMESPACE, TEMPLATES, one
from tests.support.pages.shipped_rights import EXPECTED_RIGHTS, rules_of


@pytest.mark.parametrize("account", EXPECTED_RIGHTS)
def test_an_account_has_the_rights_that_are_used_and_no_others(account: str):
    assert one("ServiceAccount", account, NAMESPACE)
    found = {
        (group, resource, verb)
        for _, rule in rules_of(account)
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert found == EXPECTED_RIGHTS[account]


def test_previews_are_the_webhooks_and_explanations_their_own_accounts_with_tokens_made_for_them():
    asking = [
        (account, rule["verbs"], rule["nonResourceURLs"])
        for account in EXPECTED_RIGHTS
        for _, rule in rules_of(account)
        if "nonResourceURLs" in rule
    ]
    assert sorted(asking) == [
        ("cardshare-explain", ["get"], [f"{EXPLAIN}/*", HELD, HISTORY, f"{HISTORY_OF_PODS}/*"]),
        ("cardshare-explain", ["post"], [SIMULATE]),
        ("cardshare-webhook", ["post"], [PREVIEW]),
    ]
    (volume,) = [v for v in TEMPLATES["Deployment cardshare-webhook"]["spec"]["volumes"] if v["name"] == "token"]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == Config().audience


def test_secrets_and_configuration_are_reached_by_their_names_alone():
    for account in EXPECTED_RIGHTS:
        for where, rule in rules_of(account):
            if {"secrets", "configmaps"} & set(rule.get("resources", ())):
                # Namespaces of others need not exist, so that no Role can stand there.
                assert where or rule["resources"] == ["configmaps"], rule
                assert rule.get("resourceNames"), rule
            if "admissionregistration.k8s.io" in rule.get("apiGroups", ()):
                assert rule["resourceNames"] == ["cardshare"]


@pytest.mark.parametrize("account", ["cardshare-controller", "cardshare-webhook"])
def test_both_processes_may_follow_every_config_map_of_the_configuration(account: str):
    settings = Settings()
    named = {
        (where, name)
        for where, rule in rules_of(account)
        for name in rule.get("resourceNames", ())
        if {"list", "watch"} <= set(rule["verbs"])
    }
    assert (settings.device_config_namespace, settings.device_config_name) in named
    for place in (SCHEDULER_MAP, hami_map(Settings())):
        assert ("", place.partition("/")[2]) in named


def test_the_controller_may_list_what_mindcluster_says_where_it_says_it():
    role, *bindings = yaml.safe_load_all((DEPLOY / "mindcluster.yaml").read_text())
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [(["configmaps"], ["list", "watch"])]
    assert {binding["metadata"]["namespace"] for binding in bindings} == {
        place.namespace for place in places(standard_catalog())
    }
    for binding in bindings:
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        (subject,) = binding["subjects"]
        assert one(subject["kind"], subject["name"], subject["namespace"])


def test_who_answers_kueue_may_follow_it_and_write_its_statuses_and_no_more():
    role, binding = yaml.safe_load_all((DEPLOY / "components/kueue/rights.yaml").read_text())
    rights = {
        (group, kind, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }
    followed = ("admissionchecks", "resourceflavors", "workloads")
    assert rights == {("kueue.x-k8s.io", kind, verb) for kind in followed for verb in ("list", "watch")} | {
        ("kueue.x-k8s.io", f"{kind}/status", "patch") for kind in ("admissionchecks", "workloads")
    }
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert one(subject["kind"], subject["name"], subject["namespace"])


def test_the_page_reads_and_asks_who_its_callers_are_and_no_more():
    documents = list(yaml.safe_load_all((DEPLOY / "components/web/web.yaml").read_text()))
    (role,) = [each for each in documents if each["kind"] == "ClusterRole"]
    rights = {
        (group, kind, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    }
    writes = {right for right in rights if right[2] not in {"get", "list", "watch"}}
    assert writes == {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    assert "secrets" not in {kind for _, kind, _ in rights}
    (certs,) = [each["rules"] for each in documents if each["kind"] == "Role"]
    (secret,) = [each["metadata"]["name"] for each in documents if each["kind"] == "Secret"]
    assert certs == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get", "create", "patch"]}
    ]


def test_who_evicts_for_others_may_do_that_and_no_more():
    role, binding = yaml.safe_load_all((DEPLOY / "preemption.yaml").read_text())
    rights = [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]]
    assert rights == [
        ([""], ["pods/eviction"], ["create"]),
        (["policy"], ["poddisruptionbudgets"], ["list", "watch"]),
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert one(subject["kind"], subject["name"], subject["namespace"])
