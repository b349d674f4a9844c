"""Workloads of deploy/: the posture of every pod, arguments as the processes read them, certificates, replicas."""

import pytest
import yaml

from certs import options as certs_options
from certs.options import EnsureInCluster, Run
from controller import config as controller_config
from controller.reporting.serve import SHADOW
from controller.run import DRAIN_S, RELEASE_S
from core import names
from core.settings import Settings
from kube.calls import OWNERS
from tests.support.devices.texts import decode_settings
from tests.support.pages.shipped import DEPLOY, NAMESPACE, OBJECTS, TEMPLATES, arguments, certs_of, container, one
from tests.support.pages.shipped_rights import EXPECTED_RIGHTS, rules_of
from webhook import options as webhook_options


def test_every_file_of_the_base_is_listed():
    listed = {*yaml.safe_load((DEPLOY / "base/kustomization.yaml").read_text())["resources"], "kustomization.yaml"}
    assert {path.name for path in (DEPLOY / "base").iterdir()} == listed


def test_workloads_are_the_four_that_there_should_be():
    assert sorted(TEMPLATES) == [
        "CronJob",
        "Deployment cardshare-certs-keeper",
        "Deployment cardshare-controller",
        "Deployment cardshare-webhook",
    ]


def test_settings_that_are_shipped_are_for_the_version_that_they_are_shipped_with():
    labels = one("ConfigMap", "cardshare-settings")["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == names.VERSION


def test_previews_are_asked_where_they_are_served_and_certified():
    args = container("Deployment cardshare-webhook")["args"]
    (url,) = [arg.partition("=")[2] for arg in args if arg.startswith("--preview-url=")]
    host, port = url.removeprefix("https://").split(":")
    (served,) = one("Service", "cardshare-controller")["spec"]["ports"]
    named = {found["name"]: found["containerPort"] for found in container("Deployment cardshare-controller")["ports"]}
    assert (host, int(port)) == (f"cardshare-controller.{NAMESPACE}.svc", served["port"])
    assert f"--preview-listen=:{named[served['targetPort']]}" in container("Deployment cardshare-controller")["args"]
    options = certs_options.parse(arguments("CronJob"), {})
    assert isinstance(options, EnsureInCluster)
    _, asked = options.place.pairs
    assert (asked.secret, asked.wanted.dns_names) == (certs_of("controller")["secretName"], (host,))


@pytest.mark.parametrize("title", TEMPLATES)
def test_a_pod_runs_restricted_on_a_read_only_root(title: str):
    assert one("Namespace", NAMESPACE)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = TEMPLATES[title]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["runAsGroup"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    context = container(title)["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert all("hostPath" not in volume for volume in spec.get("volumes", ()))
    resources = container(title)["resources"]
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]


@pytest.mark.parametrize("title", TEMPLATES)
def test_a_pod_has_a_token_exactly_where_its_account_has_rights(title: str):
    spec = TEMPLATES[title]["spec"]
    assert spec["automountServiceAccountToken"] is bool(EXPECTED_RIGHTS[spec["serviceAccountName"]])


@pytest.mark.parametrize(
    "title", [f"Deployment cardshare-{each}" for each in ("webhook", "controller", "certs-keeper")]
)
def test_a_process_is_probed_on_its_plain_port(title: str):
    found = container(title)
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    (plain,) = [arg for arg in found["args"] if arg.startswith(("--metrics-listen", "--listen")) and "844" not in arg]
    assert plain.endswith(f":{ports['plain']}")
    assert found["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "plain"}
    assert found["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "plain"}


def test_one_late_answer_takes_no_webhook_out_of_service_and_one_that_ends_leaves_before_it_stops_to_serve():
    probe = container("Deployment cardshare-webhook")["readinessProbe"]
    tries, timeout_s = probe.get("failureThreshold", 3), probe.get("timeoutSeconds", 1)
    assert tries > 1
    drain_s = webhook_options.parse(arguments("Deployment cardshare-webhook"), {}).drain_s
    assert tries * probe["periodSeconds"] + timeout_s < drain_s


@pytest.mark.parametrize("component", ["webhook", "controller"])
def test_who_serves_gets_its_pair_and_nothing_else(component: str):
    secret = certs_of(component)
    assert secret["secretName"] == f"cardshare-{component}-tls"
    assert {item["key"] for item in secret["items"]} == {"tls.crt", "tls.key", "ca.crt"}
    assert all(item["key"] == item["path"] for item in secret["items"])


def test_no_pod_mounts_the_key_that_signs_and_no_account_but_one_reads_a_secret():
    mounted = {
        v["secret"]["secretName"]
        for each in TEMPLATES.values()
        for v in each["spec"].get("volumes", ())
        if "secret" in v
    }
    assert mounted == {"cardshare-webhook-tls", "cardshare-controller-tls"}
    readers = {who for who in EXPECTED_RIGHTS for _, rule in rules_of(who) if "secrets" in rule.get("resources", ())}
    assert readers == {"cardshare-certs"}


def test_every_secret_is_shipped_empty():
    options = certs_options.parse(arguments("Deployment cardshare-certs-keeper"), {})
    assert isinstance(options, Run)
    secrets = {found["metadata"]["name"]: found for found in OBJECTS if found["kind"] == "Secret"}
    assert secrets.keys() == set(options.place.secrets)
    assert all(found.keys() == {"apiVersion", "kind", "metadata"} for found in secrets.values())


def test_no_admission_call_is_lost_when_a_node_is_drained():
    webhook = one("Deployment", "cardshare-webhook")
    assert webhook["spec"]["replicas"] == 2
    assert webhook["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = one("PodDisruptionBudget", "cardshare-webhook")["spec"]
    labels = webhook["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"] == labels == webhook["spec"]["selector"]["matchLabels"]
    assert one("Service", "cardshare-webhook")["spec"]["selector"] == labels
    spec = webhook["spec"]["template"]["spec"]
    drain_s = webhook_options.parse(arguments("Deployment cardshare-webhook"), {}).drain_s
    assert drain_s + 10 < spec["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("component", ["webhook", "controller"])
def test_a_drain_ends_with_one_replica_and_without_a_ready_pod(component: str):
    budget = one("PodDisruptionBudget", f"cardshare-{component}")["spec"]
    bounds = {key: value for key, value in budget.items() if key != "selector"}
    assert bounds == {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}


@pytest.mark.parametrize("component", ["webhook", "controller"])
def test_the_pods_of_one_rollout_are_spread_whatever_they_replace(component: str):
    for spread in TEMPLATES[f"Deployment cardshare-{component}"]["spec"]["topologySpreadConstraints"]:
        assert spread["matchLabelKeys"] == ["pod-template-hash"]


def test_a_second_controller_stands_by_for_the_lease_that_its_rights_name():
    spec = one("Deployment", "cardshare-controller")["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxUnavailable"]) == (2, 0)
    budget = one("PodDisruptionBudget", "cardshare-controller")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"] == labels == spec["selector"]["matchLabels"]
    lease = controller_config.parse(arguments("Deployment cardshare-controller"), {}).lease
    assert lease is not None
    named = [
        (where, rule["resourceNames"])
        for where, rule in rules_of("cardshare-controller")
        if "leases" in rule["resources"] and "resourceNames" in rule
    ]
    assert named == [(lease.namespace, [lease.name])]


def test_a_controller_has_time_to_end_its_writes_and_release_its_lease():
    grace_s = TEMPLATES["Deployment cardshare-controller"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > DRAIN_S + RELEASE_S + 10


def test_the_webhook_understands_its_arguments():
    options = webhook_options.parse(arguments("Deployment cardshare-webhook"), {})
    ports = {port["name"]: port["containerPort"] for port in container("Deployment cardshare-webhook")["ports"]}
    assert (options.listen.port, options.metrics_listen.port) == (ports["https"], ports["plain"])
    # The account may read nodes: see EXPECTED_RIGHTS.
    assert options.inventory is True


def test_the_controller_understands_its_arguments():
    config = controller_config.parse(arguments("Deployment cardshare-controller"), {})
    port = next(found for found in container("Deployment cardshare-controller")["ports"] if found["name"] == "plain")
    assert config.listen.port == port["containerPort"]


@pytest.mark.parametrize(("title", "account"), [("controller", "controller"), ("certs-keeper", "certs")])
def test_a_process_is_told_its_pod_and_may_write_that_pods_status(title: str, account: str):
    found = {one["name"]: one for one in container(f"Deployment cardshare-{title}")["env"]}
    fields = {name: one["valueFrom"]["fieldRef"]["fieldPath"] for name, one in found.items() if "valueFrom" in one}
    assert fields == {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name"}
    told = found["CARDSHARE_POD"]["value"].replace("$(POD_NAMESPACE)", "n").replace("$(POD_NAME)", "p")
    own = arguments(f"Deployment cardshare-{title}")
    environ = {"CARDSHARE_POD": told}
    options = certs_options.parse(own, environ) if account == "certs" else controller_config.parse(own, environ)
    assert not isinstance(options, certs_options.Ensure | EnsureInCluster)
    assert options.pod == ("n", "p")
    rights = EXPECTED_RIGHTS[f"cardshare-{account}"]
    assert {("", "pods", "get"), ("", "pods/status", "patch")} <= rights


def test_both_processes_read_every_key_of_the_settings_config_map():
    for title in ("Deployment cardshare-webhook", "Deployment cardshare-controller"):
        mounts = {mount["name"]: mount["mountPath"] for mount in container(title)["volumeMounts"]}
        assert f"--settings={mounts['settings']}" in container(title)["args"]
        (volume,) = [v for v in TEMPLATES[title]["spec"]["volumes"] if v["name"] == "settings"]
        assert volume == {"name": "settings", "configMap": {"name": "cardshare-settings"}}


@pytest.mark.parametrize("title", TEMPLATES)
def test_what_keeps_a_container_from_starting_is_shown_with_its_pod(title: str):
    assert container(title)["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("title", ["CronJob", "Deployment cardshare-certs-keeper"])
def test_certificates_are_made_for_the_service_that_the_entries_name(title: str):
    options = certs_options.parse(arguments(title), {})
    assert isinstance(options, EnsureInCluster | Run)
    assert options.place.webhooks == ("cardshare",)
    (volume,) = [v for v in TEMPLATES["Deployment cardshare-webhook"]["spec"]["volumes"] if v["name"] == "certs"]
    first, _ = options.place.pairs
    assert first.secret == volume["secret"]["secretName"]
    for webhook in one("MutatingWebhookConfiguration", "cardshare")["webhooks"]:
        service = webhook["clientConfig"]["service"]
        assert (service["namespace"], service["name"]) == (options.place.namespace, options.place.service)
        assert f"{service['name']}.{service['namespace']}.svc" in first.wanted.dns_names
        assert service["path"] == "/mutate"
    secrets = [
        rule for _, rule in rules_of("cardshare-certs") if "get" in rule["verbs"] and "secrets" in rule["resources"]
    ]
    assert [rule["resourceNames"] for rule in secrets] == [list(options.place.secrets)]


def test_the_same_certificates_are_made_at_first_and_every_day():
    keeper = certs_options.parse(arguments("Deployment cardshare-certs-keeper"), {})
    daily = certs_options.parse(arguments("CronJob"), {})
    assert isinstance(keeper, Run)
    assert isinstance(daily, EnsureInCluster)
    assert keeper.place == daily.place


def test_nothing_that_is_installed_keeps_a_later_version_from_being_applied():
    assert "Job" not in {obj["kind"] for obj in OBJECTS}


def test_settings_as_shipped_are_the_defaults():
    assert decode_settings(one("ConfigMap", "cardshare-settings")["data"]["cardshare.yaml"]) == Settings()


def test_a_shadow_stands_apart_reads_alone_and_runs_restricted():
    found = list(yaml.safe_load_all((DEPLOY / "shadow.yaml").read_text()))
    apart = {obj["metadata"].get("namespace") for obj in found if "namespace" in obj["metadata"]}
    assert apart == {"cardshare-shadow"}
    (role,) = [obj for obj in found if obj["kind"] == "ClusterRole"]
    stored = {(what, verb) for rule in role["rules"] for what in rule.get("resources", ()) for verb in rule["verbs"]}
    writes = {(what, verb) for what, verb in stored if verb not in {"get", "list", "watch"}}
    assert writes == {("tokenreviews", "create"), ("subjectaccessreviews", "create")}
    controllers = [rule for _, rule in rules_of("cardshare-controller")]
    reads = {(what, verb) for rule in controllers for what in rule["resources"] for verb in rule["verbs"]}
    owners = {(collection, "get") for _, collection in OWNERS.values()}
    assert stored - writes == {(what, verb) for what, verb in reads if verb in {"list", "watch"}} | owners
    (url,) = [rule for rule in role["rules"] if "nonResourceURLs" in rule]
    assert (url["nonResourceURLs"], url["verbs"]) == ([SHADOW], ["get"])
    pod = found[-1]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == role["metadata"]["name"]
    assert pod["securityContext"]["runAsNonRoot"]
    for each in (*pod["initContainers"], *pod["containers"]):
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not each["securityContext"]["allowPrivilegeEscalation"]
    (only,) = pod["containers"]
    config = controller_config.parse(only["args"], {})
    assert (config.shadow, config.scheduler_names, config.settings) == (True, ("volcano",), None)
    assert config.trusted == {"kube-system", "volcano-system"}
    (certs,) = pod["initContainers"]
    made = certs_options.parse(certs["args"], {})
    assert isinstance(made, certs_options.Ensure)
    assert str(made.directory) == config.cert_dir
    assert "localhost" in made.wanted.dns_names
