"""The Helm chart, rendered by helm, makes the objects of the overlays, whatever their names."""

import json
import os
import re

import pytest
import yaml

from certs.options import Run
from certs.options import parse as parse_certs
from cli.web import run as page_options
from controller.config import Config
from controller.config import parse as parse_controller
from core.configuration import hami_map
from core.settings import CONTROLLER_ACCOUNT, Settings
from tests.support.devices.texts import PLUGIN_ACCOUNTS, decode_settings
from tests.support.servers import helm
from tests.support.servers.kustomized import DEPLOY, overlay, with_component

VOLCANO = {"volcano": "system:serviceaccount:volcano-system:volcano-scheduler"}
# What each overlay is by values.
VALUES = {
    "default": {},
    "volcano-name": {"schedulerNames": ["cardshare", "volcano"], "trustNamespaces": ["kube-system", "volcano-system"]},
    "beside-volcano": {"otherSchedulers": VOLCANO, "trustNamespaces": ["kube-system", "volcano-system"]},
    "cert-manager": {"certificates": {"issuer": "cert-manager"}},
}


@pytest.fixture(scope="module")
def renderer():
    try:
        return helm.find(os.environ)
    except helm.UnavailableError as e:
        pytest.skip(str(e))


@pytest.fixture(scope="module")
def render(renderer):
    """What is installed of some values."""

    def installed(*args, **named):
        return [each for each in renderer.render(*args, **named) if hook_of(each) != "pre-delete"]

    return installed


def hook_of(each):
    return each["metadata"].get("annotations", {}).get("helm.sh/hook", "")


def by_key(objects):
    """Objects by kind, namespace and name, in a form in which what means the same is the same."""
    found = {}
    for one in objects:
        metadata = one["metadata"]
        notes = metadata.get("annotations", {})
        if notes.get("helm.sh/hook") == "test" or one["kind"] == "Namespace":
            continue
        metadata["annotations"] = {key: value for key, value in notes.items() if not key.startswith("helm.sh/")}
        if not metadata["annotations"]:
            del metadata["annotations"]
        if "cardshare.yaml" in one.get("data", {}):
            one["data"]["cardshare.yaml"] = yaml.safe_load(one["data"]["cardshare.yaml"])
        key = (one["kind"], metadata.get("namespace"), metadata["name"])
        assert key not in found
        found[key] = plain(one)
    return found


def plain(value):
    """*value* with no more than one blank between words: CEL that is broken into other lines is the same."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return " ".join(value.split()) if isinstance(value, str) else value


@pytest.mark.parametrize("name", VALUES)
def test_the_chart_makes_the_objects_of_each_overlay(render, name):
    expected, found = by_key(overlay(name)), by_key(render(values=VALUES[name]))
    assert found.keys() == expected.keys()
    for key, one in expected.items():
        assert found[key] == one, key


def test_the_chart_answers_kueue_as_the_component_does(render):
    expected = by_key(with_component("default", "kueue"))
    assert by_key(render(values={"kueue": {"enabled": True}})) == expected


@pytest.mark.parametrize(
    ("components", "values"),
    [(["web"], {}), (["web-cert-manager", "cert-manager"], {"certificates": {"issuer": "cert-manager"}})],
    ids=["own", "cert-manager"],
)
def test_the_chart_serves_the_page_as_the_component_does(render, components, values):
    expected, found = (
        by_key(with_component("default", *components)),
        by_key(render({**values, "web": {"enabled": True}})),
    )
    assert found.keys() == expected.keys()
    for key, one in expected.items():
        assert found[key] == one, key


def test_elsewhere_the_page_has_names_of_its_own_and_the_pair_that_it_mounts(render):
    found = render({"name": "shares", "web": {"enabled": True, "audiences": ["a", "b"]}}, namespace="elsewhere")
    (container,) = one(found, "Deployment", "shares-web")["spec"]["template"]["spec"]["containers"]
    options = page_options.parse(container["args"], {})
    assert (options.own_map, options.audiences) == ("elsewhere/shares-settings", ("a", "b"))
    (keeper,) = one(found, "Deployment", "shares-certs-keeper")["spec"]["template"]["spec"]["containers"]
    wanted = parse_certs(keeper["args"], {})
    assert isinstance(wanted, Run)
    assert wanted.place.secrets[-1] == "shares-web-tls"
    assert wanted.place.pairs[-1].wanted.dns_names == ("shares-web.elsewhere.svc",)
    assert {"shares-web-tls"} == {*one(found, "Role", "shares-certs-web")["rules"][0]["resourceNames"]}


def test_without_a_word_there_is_no_page(render):
    assert not [each for each in render() if "-web" in each["metadata"]["name"].replace("webhook", "")]


def strings(value):
    if isinstance(value, dict):
        for key, each in value.items():
            yield from (key, *strings(each))
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


@pytest.fixture(scope="module")
def elsewhere(render):
    return render(values={"name": "shares", "schedulerNames": ["cardshare", "volcano"]}, namespace="elsewhere")


def one(objects, kind, name):
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def entries(objects, policy, variable):
    """The list that a variable of a policy is."""
    spec = one(objects, "ValidatingAdmissionPolicy", policy)["spec"]
    (expression,) = [each["expression"] for each in spec["variables"] if each["name"] == variable]
    return re.findall("'(.*)'", expression)


def test_hamis_config_map_of_values_is_read_allowed_and_reviewed(render):
    found = render({"hamiConfig": {"namespace": "gpu-stack", "name": "shares-scheduler-device"}})
    text = one(found, "ConfigMap", "cardshare-settings")["data"]["cardshare.yaml"]
    assert hami_map(decode_settings(text)) == "gpu-stack/shares-scheduler-device"
    for role in ("cardshare-controller", "cardshare-webhook", "cardshare-viewer"):
        named = [name for rule in one(found, "ClusterRole", role)["rules"] for name in rule.get("resourceNames", ())]
        assert "shares-scheduler-device" in named
        assert "hami-scheduler-device" not in named
    (entry,) = [
        each
        for kept in found
        if kept["kind"] == "ValidatingWebhookConfiguration"
        for each in kept["webhooks"]
        if "is-read-as-configuration" in str(each)
    ]
    assert "'gpu-stack/shares-scheduler-device'" in str(entry["matchConditions"])
    assert "gpu-stack" in entry["namespaceSelector"]["matchExpressions"][0]["values"]
    asked = [re.findall(r"serviceAccount\('(.*?)', '(.*?)'\)", str(each)) for each in found]
    assert {each for several in asked for each in several} == {("gpu-stack", "shares-scheduler")}


def test_accounts_of_values_are_those_of_policies_conditions_and_settings(render):
    writer, plugin = "system:serviceaccount:mine:writer-*", "system:serviceaccount:kube-system:another-plugin"
    accounts = {"trusted": [writer], "plugins": {plugin: ["example.com/a", "example.com/b-*"]}, "phase": ["mender"]}
    usual = render()
    found = render({"accounts": accounts, "pluginsOnOtherNodes": "deny", "pluginNodeWrites": "Deny"})
    for name in ("pods.cardshare.io", "bindings.cardshare.io"):
        assert entries(found, name, "trustedAccounts") == [CONTROLLER_ACCOUNT, writer]
        assert entries(found, name, "pluginAccounts") == [*entries(usual, name, "pluginAccounts"), plugin]
    assert entries(found, "pods.cardshare.io", "phaseAccounts")[-1] == "mender"
    assert entries(found, "pods.cardshare.io", "pluginsOnOtherNodes") == ["deny"]
    owned = [f"{plugin}=example.com/a", f"{plugin}=example.com/b-*"]
    assert entries(found, "nodes.cardshare.io", "pluginNodeKeys")[-2:] == owned
    for name in ("pods.cardshare.io", "nodes.cardshare.io"):
        (condition,) = one(found, "ValidatingAdmissionPolicy", name)["spec"]["matchConditions"]
        assert f"'{plugin}'" in condition["expression"]
    bound = one(found, "ValidatingAdmissionPolicyBinding", "nodes.cardshare.io")["spec"]
    assert bound["validationActions"] == ["Deny", "Audit"]
    admission = decode_settings(one(found, "ConfigMap", "cardshare-settings")["data"]["cardshare.yaml"]).admission
    assert sorted(admission.trusted_accounts or ()) == sorted([CONTROLLER_ACCOUNT, writer, *PLUGIN_ACCOUNTS, plugin])
    assert sorted(admission.plugin_accounts or ()) == sorted([*PLUGIN_ACCOUNTS, plugin])
    assert admission.plugins_on_other_nodes == "deny"


def test_elsewhere_nothing_keeps_the_usual_names(elsewhere):
    # The audience and the names of the policies' and the webhooks' entries are words, and no objects' names.
    known = re.compile(r"cardshare\.io|^cardshare$|^cardshare:|/etc/cardshare|^cardshare-controller$")
    kept = {text for each in elsewhere for text in strings(each) if "cardshare" in text and not known.search(text)}
    assert {text for text in kept if "cardshare-" in text} == set()
    audiences = [
        each["serviceAccountToken"]["audience"]
        for each in one(elsewhere, "Deployment", "shares-webhook")["spec"]["template"]["spec"]["volumes"][-1][
            "projected"
        ]["sources"]
    ]
    assert audiences == [Config().audience]


def test_elsewhere_every_name_that_an_object_refers_to_exists(elsewhere):
    there = {(each["kind"], each["metadata"]["name"]) for each in elsewhere}
    for each in elsewhere:
        spec = each.get("spec", {})
        if each["kind"].endswith("RoleBinding"):
            assert (each["roleRef"]["kind"], each["roleRef"]["name"]) in there
            assert {(who["kind"], who["name"]) for who in each["subjects"]} <= there
        template = spec.get("jobTemplate", {"spec": spec})["spec"].get("template", {}).get("spec")
        if template is not None:
            assert ("ServiceAccount", template["serviceAccountName"]) in there
            for volume in template.get("volumes", ()):
                if "configMap" in volume:
                    assert ("ConfigMap", volume["configMap"]["name"]) in there
                if "secret" in volume:
                    assert ("Secret", volume["secret"]["secretName"]) in there
        for entry in each.get("webhooks", ()):
            service = entry["clientConfig"]["service"]
            assert ("Service", service["name"]) in there
            assert service["namespace"] == "elsewhere"
            assert "elsewhere" in entry["namespaceSelector"]["matchExpressions"][0]["values"]
        if "policyName" in spec:
            assert ("ValidatingAdmissionPolicy", spec["policyName"]) in there


def test_elsewhere_the_controllers_account_is_trusted_by_webhook_conditions_and_policies_alike(elsewhere):
    account = "system:serviceaccount:elsewhere:shares-controller"
    settings = decode_settings(one(elsewhere, "ConfigMap", "shares-settings")["data"]["cardshare.yaml"])
    assert sorted(settings.admission.trusted_accounts or ()) == sorted([account, *PLUGIN_ACCOUNTS])
    assert settings.scheduler_names == ("cardshare", "volcano")
    for name in ("pods.cardshare.io", "bindings.cardshare.io"):
        assert entries(elsewhere, name, "trustedAccounts") == [account]
    (locks,) = one(elsewhere, "ValidatingAdmissionPolicy", "locks.nodes.cardshare.io")["spec"]["matchConditions"]
    assert re.findall("'(.*)'", locks["expression"]) == [account]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for entry in one(elsewhere, kind, "shares")["webhooks"]:
            for condition in entry.get("matchConditions", ()):
                if condition["name"] in ("writer-is-not-trusted-here", "writer-is-no-scheduler"):
                    assert f"'{account}'" in condition["expression"], entry["name"]


def test_elsewhere_the_processes_are_told_of_the_names(elsewhere):
    def args(kind, name):
        (container,) = one(elsewhere, kind, name)["spec"]["template"]["spec"]["containers"]
        return container["args"]

    options = parse_controller(args("Deployment", "shares-controller"), {})
    assert options.lease == ("elsewhere", "shares-controller")
    wanted = parse_certs(args("Deployment", "shares-certs-keeper"), {})
    assert isinstance(wanted, Run)
    place = wanted.place
    assert (place.namespace, place.service, place.webhooks) == ("elsewhere", "shares-webhook", ("shares",))
    assert place.secrets == ("shares-ca", "shares-webhook-tls", "shares-controller-tls")
    assert {("Secret", name) for name in place.secrets} <= {
        (each["kind"], each["metadata"]["name"]) for each in elsewhere
    }
    assert place.pairs[1].wanted.dns_names == ("shares-controller.elsewhere.svc",)
    assert "--preview-url=https://shares-controller.elsewhere.svc:8444" in args("Deployment", "shares-webhook")
    (doctor,) = one(elsewhere, "Pod", "shares-doctor")["spec"]["containers"]
    assert doctor["args"] == ["doctor", "--namespace=elsewhere", "--name=shares"]


def test_at_its_removal_the_webhook_configurations_go_first_and_empty_ones_of_their_names_do_not_stay(renderer):
    found = renderer.render({"name": "shares"}, namespace="elsewhere")
    removed = {(each["kind"], each["metadata"]["name"]) for each in found if hook_of(each) == "pre-delete"}
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    assert removed == {(kind, "shares") for kind in kinds}
    for each in found:
        if hook_of(each) == "pre-delete":
            assert each["webhooks"] == []
            policy = each["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            assert policy == "before-hook-creation,hook-succeeded"


def test_elsewhere_cert_manager_makes_what_is_mounted_and_trusted(render):
    found = render(values={"name": "shares", "certificates": {"issuer": "cert-manager"}}, namespace="elsewhere")
    secrets = {each["spec"]["secretName"]: each["spec"] for each in found if each["kind"] == "Certificate"}
    for component in ("webhook", "controller"):
        volumes = one(found, "Deployment", f"shares-{component}")["spec"]["template"]["spec"]["volumes"]
        (mounted,) = [each["secret"]["secretName"] for each in volumes if "secret" in each]
        assert secrets[mounted]["dnsNames"] == [f"shares-{component}.elsewhere.svc"]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        where = {"cert-manager.io/inject-ca-from": "elsewhere/shares-webhook-tls"}
        assert one(found, kind, "shares")["metadata"]["annotations"] == where


def test_an_issuer_of_the_operators_signs_both_pairs_and_there_is_no_other(render):
    ours = {"name": "company", "kind": "ClusterIssuer"}
    found = render(values={"certificates": {"issuer": "cert-manager", "issuerRef": ours}})
    assert "Issuer" not in {each["kind"] for each in found}
    certificates = [each for each in found if each["kind"] == "Certificate"]
    assert {each["metadata"]["name"] for each in certificates} == {
        "cardshare-webhook-tls",
        "cardshare-controller-tls",
    }
    assert [each["spec"]["issuerRef"] for each in certificates] == [ours, ours]


def test_without_another_scheduler_nobody_else_assigns_cards(render):
    found = render(values={"otherSchedulers": {"hami-scheduler": None}})
    for name in ("pods.cardshare.io", "bindings.cardshare.io"):
        assert entries(found, name, "schedulerAccounts") == []
    assert decode_settings(one(found, "ConfigMap", "cardshare-settings")["data"]["cardshare.yaml"]) == Settings()
    conditions = [
        condition
        for each in found
        for entry in each.get("webhooks", ())
        for condition in entry.get("matchConditions", ())
    ]
    assert "writer-is-not-its-scheduler" not in {condition["name"] for condition in conditions}
    assert not any(":hami-scheduler'" in condition["expression"] for condition in conditions)


def test_what_values_set_to_null_is_as_if_nobody_had_set_it(render):
    nulls = {"preemption": None, "metrics": {"per_pod": None}, "admission": {"never_fits": {"team-a": None}}}
    found = render(values={"otherSchedulers": {"volcano": None}, "settings": nulls})
    decode_settings(one(found, "ConfigMap", "cardshare-settings")["data"]["cardshare.yaml"])
    assert by_key(found) == by_key(render(values={"settings": {"metrics": {}, "admission": {"never_fits": {}}}}))


def test_no_map_of_other_schedulers_or_settings_is_an_empty_one(render):
    found = render(values={"otherSchedulers": None, "settings": None})
    assert by_key(found) == by_key(render(values={"otherSchedulers": {"hami-scheduler": None}}))


@pytest.mark.parametrize(
    "text", ['  # Ours.\nactions: "allocate"\n', '\nactions: "allocate"\n', 'actions: "allocate"\n']
)
def test_volcanos_configuration_of_values_is_kept_as_it_is(render, text):
    found = render(values={"volcanoSchedulerConf": text})
    assert one(found, "ConfigMap", "cardshare-settings")["data"]["volcano-scheduler.conf"] == text


CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def test_an_authority_and_names_of_values_are_those_who_may_call_the_webhook(render):
    found = render(values={"name": "shares", "webhook": {"clientCa": CA, "clientNames": ["kube-apiserver", "b"]}})
    spec = one(found, "Deployment", "shares-webhook")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    asked = [arg for arg in container["args"] if arg.startswith("--client-")]
    assert asked == ["--client-ca=/etc/cardshare/client-ca/ca.crt", "--client-name=kube-apiserver", "--client-name=b"]
    (mount,) = [each for each in container["volumeMounts"] if each["mountPath"] == "/etc/cardshare/client-ca"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
    assert one(found, "ConfigMap", volume["configMap"]["name"])["data"] == {"ca.crt": CA}


def test_what_prometheus_and_grafana_need_is_there_if_values_say_so(render):
    wanted = {"podMonitor": True, "rules": True, "dashboard": True, "labels": {"release": "prometheus"}}
    found = render(values={"name": "shares", "monitoring": wanted}, namespace="elsewhere")
    for kind, file in (("PodMonitor", "podmonitor.yaml"), ("PrometheusRule", "alerts.yaml")):
        made = one(found, kind, "shares")
        given = yaml.safe_load((DEPLOY / "monitoring" / file).read_text(encoding="utf-8"))
        assert made["spec"] == given["spec"]
        assert made["metadata"]["namespace"] == "elsewhere"
        assert made["metadata"]["labels"] == {**given["metadata"]["labels"], "release": "prometheus"}
    dashboard = one(found, "ConfigMap", "shares-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    text = (DEPLOY / "monitoring" / "dashboard.json").read_text(encoding="utf-8")
    assert json.loads(dashboard["data"]["cardshare.json"]) == json.loads(text)


def test_what_a_test_makes_goes_however_it_ends_and_says_first_what_it_found(renderer):
    tests = [each for each in renderer.render() if hook_of(each) == "test"]
    for each in tests:
        policy = each["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert policy == "before-hook-creation,hook-succeeded,hook-failed"
    (pod,) = [each for each in tests if each["kind"] == "Pod"]
    assert pod["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == "hook-succeeded,hook-failed"


@pytest.mark.parametrize("base", ["https://git.example.com/c/blob/main", "https://git.example.com/c/blob/main/"])
def test_every_runbook_begins_with_the_base_of_values(render, base):
    def runbooks(monitoring):
        groups = one(render(values={"monitoring": monitoring}), "PrometheusRule", "cardshare")["spec"]["groups"]
        return [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]

    relative = runbooks({"rules": True})
    assert all(each.startswith("docs/") for each in relative)
    found = runbooks({"rules": True, "runbookBase": base})
    assert found == [f"https://git.example.com/c/blob/main/{each}" for each in relative]


def test_every_process_logs_in_the_format_of_values(render):
    found = render(values={"logFormat": "logfmt"})
    for component in ("controller", "webhook", "certs-keeper"):
        (container,) = one(found, "Deployment", f"cardshare-{component}")["spec"]["template"]["spec"]["containers"]
        assert "--log-format=logfmt" in container["args"]


PAGE = {"web": {"enabled": True}}


def pods_of(objects):
    """The spec of every pod that is made of *objects*, by the name of what makes it."""
    kinds = ("Deployment", "CronJob", "Pod")
    return {
        each["metadata"]["name"].removeprefix("cardshare-"): one_template(each)
        for each in objects
        if each["kind"] in kinds
    }


def one_template(each):
    spec = each["spec"]
    spec = spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec
    return spec["template"]["spec"] if "template" in spec else spec


def test_every_pod_runs_on_the_nodes_of_values(render):
    where = {
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    }
    pods = pods_of(render(values=where | PAGE))
    assert pods.keys() == {"webhook", "controller", "certs-keeper", "certs", "web", "doctor"}
    for name, pod in pods.items():
        assert {key: pod.get(key) for key in where} == where, name


@pytest.mark.parametrize("name", ["", "cluster-services"])
def test_webhook_and_controller_have_the_priority_of_values(render, name):
    usual, found = pods_of(render(values=PAGE)), pods_of(render(values={"priorityClassName": name} | PAGE))
    ranked = {each for each, pod in usual.items() if "priorityClassName" in pod}
    assert ranked == {"webhook", "controller"}
    assert {each: pod["priorityClassName"] for each, pod in found.items() if "priorityClassName" in pod} == (
        dict.fromkeys(ranked, name) if name else {}
    )


def test_each_process_has_the_resources_of_values_and_keeps_the_others(render):
    names = {
        "webhook": "webhook",
        "controller": "controller",
        "certsKeeper": "certs-keeper",
        "certs": "certs",
        "web": "web",
    }
    usual = pods_of(render(values=PAGE))
    for number, (value, name) in enumerate(names.items()):
        resources = {value: {"limits": {"memory": f"{number + 3}Gi", "cpu": number + 2}, "requests": {"cpu": None}}}
        found = pods_of(render(values={"resources": resources} | PAGE))
        for each, pod in found.items():
            (before,), (after,) = usual[each]["containers"], pod["containers"]
            if each == name:
                assert after["resources"] == {
                    "limits": {"memory": f"{number + 3}Gi", "cpu": number + 2},
                    "requests": {"memory": before["resources"]["requests"]["memory"]},
                }
            else:
                assert after["resources"] == before["resources"]


def test_no_hook_outlives_an_installation_that_fails(renderer):
    hooks = {(hook_of(each), each["kind"]) for each in renderer.render() if hook_of(each)}
    assert {hook for hook, _ in hooks} == {"test", "pre-delete"}, "none is made when it is installed or upgraded"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"image": {"repository": "host/cardshare@sha256:" + 64 * "0"}}, "repository"),
        ({"image": {"repository": "host:5000/cardshare:1.2"}}, "repository"),
        ({"image": {"repository": "cardshare:1.2"}}, "repository"),
        ({"image": {"tag": "sha256:0"}}, "tag"),
        ({"image": {"tag": "a tag"}}, "tag"),
        ({"nodeSelector": ["gpu"]}, "nodeSelector"),
        ({"tolerations": {"key": "gpu"}}, "tolerations"),
        ({"affinity": {"nodeAffinities": {}}}, "nodeAffinities"),
        ({"priorityClassName": "Not a name"}, "priorityClassName"),
        ({"resources": {"controler": {}}}, "controler"),
        ({"resources": {"controller": {"memory": "4Gi"}}}, "memory"),
        ({"schedulerNames": ["default-scheduler"]}, "schedulerNames"),
        ({"otherSchedulers": {"x": "somebody"}}, "otherSchedulers"),
        ({"settings": {"scheduler_names": ["x"]}}, "settings"),
        ({"settings": {"policcy": "pack"}}, "policcy"),
        ({"settings": {"metrics": {"per_pods": True}}}, "per_pods"),
        ({"settings": {"admission": {"hide_device": True}}}, "hide_device"),
        ({"name": "Not-A-Name"}, "name"),
        ({"accounts": {"trusted": ["a', 'b"]}}, "accounts"),
        ({"pluginNodeWrites": "deny"}, "pluginNodeWrites"),
        ({"webhook": {"clientNames": ["kube-apiserver"]}}, "clientCa"),
        ({"webhook": {"clientCa": "/etc/ca.crt"}}, "clientCa"),
        ({"monitoring": {"rule": True}}, "rule"),
        ({"monitoring": {"runbookBase": "git.example.com"}}, "runbookBase"),
        ({"logFormat": "text"}, "logFormat"),
        ({"certificates": {"issuer": "somebody"}}, "issuer"),
        ({"certificates": {"issuerRef": {"name": "company"}}}, "certificates"),
        ({"certificates": {"issuer": "cert-manager", "issuerRef": {"kind": "Issuer"}}}, "issuerRef"),
        # What is empty in a file of values is null, and helm then takes the chart's own value away.
        ({"accounts": None}, "missing property 'accounts'"),
        ({"certificates": {"issuer": None}}, "missing property 'issuer'"),
        ({"pluginsOnOtherNodes": None}, "missing property 'pluginsOnOtherNodes'"),
        ({"web": None}, "missing property 'web'"),
    ],
)
def test_values_that_cannot_be_right_are_refused_by_their_name(renderer, values, says):
    with pytest.raises(helm.RefusedError, match=says):
        renderer.render(values)


def test_an_image_may_be_named_by_its_digest(renderer):
    digest = "sha256:" + 32 * "0a"
    for tag, end in ((digest, f"@{digest}"), (f"1.2@{digest}", f":1.2@{digest}"), ("1.2", ":1.2")):
        objects = renderer.render({"image": {"repository": "host:5000/cardshare", "tag": tag}})
        assert set(re.findall(r"'image': '([^']+)'", str(objects))) == {f"host:5000/cardshare{end}"}


def test_in_kube_system_too_each_object_has_a_name_of_its_own(render):
    found = by_key(render(PAGE, namespace="kube-system"))
    assert ("Role", "kube-system", "cardshare-controller") in found


def test_it_is_not_installed_in_the_namespace_default_whose_pods_the_webhook_would_skip(renderer):
    with pytest.raises(helm.RefusedError, match="such as -n cardshare-system --create-namespace"):
        renderer.render(namespace="default")
