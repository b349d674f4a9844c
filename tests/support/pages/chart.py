"""``scripts/manifests``: writes the templates of deploy/chart anew, from deploy/base.

The chart has no text of its own about what is installed: each template is a file of the base, in which names, namespace
and what the overlays patch are values. What stands only in the chart (settings, `helm test`) is written by hand.
"""

import re
from pathlib import Path
from typing import Final

import yaml

_DEPLOY: Final = Path(__file__).parents[3] / "deploy"
CHART: Final = _DEPLOY / "chart"
NAME: Final = '{{ include "cardshare.name" $ }}'
_NAMESPACE: Final = "{{ $.Release.Namespace }}"
# The namespace is helm's to make, and settings.yaml is written by hand.
_FILES: Final = (
    "accounts.yaml",
    "admission.yaml",
    "certificates.yaml",
    "controller.yaml",
    "policy.yaml",
    "preview.yaml",
    "rights.yaml",
    "viewer.yaml",
    "webhook.yaml",
)
_OBJECTS: Final = (
    r"\bcardshare-(callers|ca|cert-manager-ca|certs-keeper|certs-web|certs|controller-kueue|controller-tls|controller-volcano"
    r"|controller|explain|history|last-good|preview|selfsigned|settings|viewer|web-tls|webhook-tls|webhook|web)\b"
)
_LABEL: Final = "    app.kubernetes.io/name: cardshare\n"
_OTHERS: Final = """\
      {{- with include "cardshare.others" $ }}
      - name: writer-is-not-its-scheduler
        expression: |
{{ . | indent 10 }}
      {{- end }}
"""


_MORE_LABELS: Final = "    {{- with $.Values.monitoring.labels }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n"
_RUNBOOK_BASE: Final = '{{ with $.Values.monitoring.runbookBase }}{{ trimSuffix "/" . }}/{{ end }}'
# Grafana's sidecar reads ConfigMaps that have a label.
_DASHBOARD: Final = f"""\
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {NAME}-dashboard
  namespace: {_NAMESPACE}
  labels:
{_LABEL}    {{{{- toYaml $.Values.monitoring.dashboardLabels | nindent 4 }}}}
data:
  cardshare.json: |
{{{{ $.Files.Get "dashboard.json" | trim | indent 4 }}}}
"""
# What there is of our own certificates, and who has to be trusted where they are cert-manager's.
_OWN: Final = re.compile(
    r"^  name: cardshare-(certs|certs-keeper|certs-web|ca|web-tls|webhook-tls|controller-tls)$", re.MULTILINE
)
_REGISTRATION: Final = re.compile(r"^kind: (?:Mutating|Validating)WebhookConfiguration\nmetadata:\n", re.MULTILINE)
_TRUST: Final = "  annotations:\n    cert-manager.io/inject-ca-from: cardshare-system/cardshare-webhook-tls\n"
_ISSUER: Final = re.compile(r"(?<=  issuerRef:\n)(?:    .*\n)+")
_ISSUER_REF: Final = "    {{- toYaml $.Values.certificates.issuerRef | nindent 4 }}\n"
_IS_OWN: Final = 'eq $.Values.certificates.issuer "own"'
_IS_CERT_MANAGERS: Final = 'eq $.Values.certificates.issuer "cert-manager"'
# What is given to the container of a pod, and of which component the pod is.
_RESOURCES: Final = re.compile(r"^( *)resources:\n(?:\1  +(?:requests|limits|cpu|memory):.*\n)+", re.MULTILINE)
_COMPONENT: Final = re.compile(r"app\.kubernetes\.io/component: ([a-z-]+)$", re.MULTILINE)
_HAS_PAGE: Final = "$.Values.web.enabled"
_PAGE_PAIR: Final = rf"--pair={NAME}-web-tls={NAME}-web.{_NAMESPACE}.svc"
_HAS_NO_ISSUER: Final = "not $.Values.certificates.issuerRef"


def files() -> dict[str, str]:
    """Every file of the chart that follows from the base and from the component for cert-manager, by its path there."""
    base = {name: (_DEPLOY / "base" / name).read_text(encoding="utf-8") for name in _FILES}
    found = {f"templates/{name}": template(text) for name, text in base.items()}
    others = (_DEPLOY / "components/cert-manager/certificates.yaml").read_text(encoding="utf-8")
    found["templates/certificates-cert-manager.yaml"] = _if(_IS_CERT_MANAGERS, _by_cert_manager(others))
    rights = template((_DEPLOY / "overlays/volcano-name/rights.yaml").read_text(encoding="utf-8"), labelled=False)
    found["templates/rights-volcano.yaml"] = _if('has "volcano" $.Values.schedulerNames', rights)
    rights = template((_DEPLOY / "components/kueue/rights.yaml").read_text(encoding="utf-8"), labelled=False)
    found["templates/rights-kueue.yaml"] = _if("$.Values.kueue.enabled", rights)
    page = template((_DEPLOY / "components/web/web.yaml").read_text(encoding="utf-8"))
    found["templates/web.yaml"] = _if(_HAS_PAGE, page + _page_by_cert_manager())
    found["templates/monitoring.yaml"] = _monitoring()
    found["dashboard.json"] = (_DEPLOY / "monitoring/dashboard.json").read_text(encoding="utf-8")
    policy = next(yaml.load_all(base["policy.yaml"], Loader=yaml.CSafeLoader))["spec"]
    (plugins,) = (each["expression"] for each in policy["variables"] if each["name"] == "pluginAccounts")
    return found | {"plugin-accounts.txt": "\n".join(re.findall("'(.*)'", plugins)) + "\n"}


def template(text: str, *, labelled: bool = True) -> str:
    """The template of one file; *labelled*: with the label that the base's kustomization gives every object."""
    assert "{{" not in text
    parts = text.split("\n---\n")
    text = "\n---\n".join(map(_guarded, map(_labelled, map(_sized, parts)))) if labelled else text
    for replaced, by in REPLACED:
        text = re.sub(replaced, by, text, flags=re.MULTILINE)
    return f"{text.rstrip()}\n"


def _if(condition: str, text: str, otherwise: str = "") -> str:
    """*text* where the condition holds, and else *otherwise*; whole lines."""
    alternative = f"{{{{- else }}}}\n{otherwise}" if otherwise else ""
    return f"{{{{- if {condition} }}}}\n{text}{alternative}{{{{- end }}}}\n"


def _sized(document: str) -> str:
    """*document* with the resources of its component's value: certsKeeper of certs-keeper."""

    def value(found: re.Match[str]) -> str:
        first, *more = _COMPONENT.findall(document)[0].split("-")
        name = first + "".join(word.capitalize() for word in more)
        return f"{found[1]}resources: {{{{ toJson $.Values.resources.{name} }}}}\n"

    return _RESOURCES.sub(value, document)


def _guarded(document: str) -> str:
    """*document*: only where it is needed for certificates of our own; which cert-manager's injector finds else."""
    if _OWN.search(document) and "cert-manager.io/" not in document:
        return _if(_IS_OWN, f"{document.rstrip()}\n").rstrip()
    return _REGISTRATION.sub(lambda found: found[0] + _if(_IS_CERT_MANAGERS, _TRUST), document)


def _by_cert_manager(text: str) -> str:
    """What cert-manager makes certificates by: an authority unless there is an Issuer, and pairs, two in the end."""
    *authority, webhook, controller = template(text).rstrip().split("\n---\n")
    pairs = "\n---\n".join((webhook, controller)) + "\n"
    signed = _ISSUER.sub(lambda found: _if(_HAS_NO_ISSUER, found[0], _ISSUER_REF), pairs)
    return _if(_HAS_NO_ISSUER, "\n---\n".join(authority) + "\n") + "---\n" + signed


def _page_by_cert_manager() -> str:
    """What cert-manager makes the page's certificate by."""
    text = (_DEPLOY / "components/web-cert-manager/certificate.yaml").read_text(encoding="utf-8")
    signed = _ISSUER.sub(lambda found: _if(_HAS_NO_ISSUER, found[0], _ISSUER_REF), template(text))
    return _if(_IS_CERT_MANAGERS, f"---\n{signed}")


def _monitoring() -> str:
    """What Prometheus' operator and Grafana take, each by a value of its own; braces of alerts are Prometheus'."""
    parts = []
    for value, name in (("podMonitor", "podmonitor"), ("rules", "alerts")):
        text = (_DEPLOY / f"monitoring/{name}.yaml").read_text(encoding="utf-8")
        escaped = re.sub(r"\{\{|\}\}", lambda found: f'{{{{ "{found[0]}" }}}}', text)
        escaped = escaped.replace("runbook_url: ", f"runbook_url: {_RUNBOOK_BASE}")
        named = re.sub(r"^  name: cardshare$", f"  name: {NAME}", escaped, count=1, flags=re.MULTILINE)
        placed = named.replace("  namespace: cardshare-system\n", f"  namespace: {_NAMESPACE}\n")
        parts.append(_if(f"$.Values.monitoring.{value}", "---\n" + placed.replace(_LABEL, _LABEL + _MORE_LABELS, 1)))
    return "".join(parts) + _if("$.Values.monitoring.dashboard", _DASHBOARD)


def _labelled(document: str) -> str:
    """*document* with the label among those of its metadata."""
    head, metadata, rest = re.split(r"^(metadata:\n(?:  .*\n?)+)", document, maxsplit=1, flags=re.MULTILINE)
    if _LABEL in metadata:
        return document
    if re.search(r"^  labels:.*\n", metadata, re.MULTILINE):
        metadata = re.sub(r"^(  labels:.*\n)", rf"\1{_LABEL}", metadata, flags=re.MULTILINE)
    else:
        metadata = f"{metadata.rstrip()}\n  labels:\n{_LABEL}"
    return f"{head}{metadata}{rest}"


REPLACED: Final = (
    # The audience is a word that both sides know, and no object's name.
    (r"audience(:?) cardshare-controller$", r"audience\1 cardshare@controller"),
    ("'system:serviceaccount:cardshare-system:cardshare-controller'", "'{{ include \"cardshare.account\" $ }}'"),
    (_OBJECTS, rf"{NAME}-\1"),
    ("cardshare-system", _NAMESPACE),
    # HAMi's chart names its configuration after its scheduler's account.
    (
        r"serviceAccount\('kube-system', 'hami-scheduler'\)",
        "serviceAccount('{{ $.Values.hamiConfig.namespace }}', "
        "'{{ trimSuffix \"-device\" $.Values.hamiConfig.name }}')",
    ),
    ("cardshare@", "cardshare-"),
    (r"^  name: cardshare$", f"  name: {NAME}"),
    (r"resourceNames: \[cardshare\]", f"resourceNames: [{NAME}]"),
    (
        r"^( *)- --webhook=cardshare$",
        rf"\1- --webhook={NAME}\n\1{{{{- if {_HAS_PAGE} }}}}\n\1- {_PAGE_PAIR}\n\1{{{{- end }}}}",
    ),
    (r"image: cardshare$", 'image: {{ include "cardshare.image" $ }}'),
    (r"imagePullPolicy: IfNotPresent", "imagePullPolicy: {{ $.Values.image.pullPolicy }}"),
    (
        r"^( *)enableServiceLinks: false\n",
        r"\1enableServiceLinks: false\n\1{{- with $.Values.image.pullSecrets }}\n"
        r"\1imagePullSecrets: {{ toJson . }}\n\1{{- end }}\n"
        + "".join(
            rf"\1{{{{- with $.Values.{key} }}}}\n\1{key}: {{{{ toJson . }}}}\n\1{{{{- end }}}}\n"
            for key in ("nodeSelector", "tolerations", "affinity")
        ),
    ),
    (
        r"^( *)priorityClassName: system-cluster-critical$",
        r"\1{{- with $.Values.priorityClassName }}\n\1priorityClassName: {{ . }}\n\1{{- end }}",
    ),
    (r'(CARDSHARE_TRUST_NAMESPACES\n *value: )""', r'\1{{ join "," $.Values.trustNamespaces | quote }}'),
    (r"^( *)'kube-system/hami-scheduler-device',$", r"""\1'{{ include "cardshare.hamiConfig" $ }}',"""),
    (
        r"(values: )\[\{\{ \$\.Release\.Namespace \}\}, kube-system, volcano-system\]",
        r'\1{{ list $.Release.Namespace "kube-system" "volcano-system" $.Values.hamiConfig.namespace'
        " | uniq | toJson }}",
    ),
    (r"\bhami-scheduler-device\b(?=\]|$)", "{{ $.Values.hamiConfig.name }}"),
    (r"replicas: 2$", 'replicas: {{ include "cardshare.replicas" $ }}'),
    (
        r"^( *)(- --keep-history=.*\n)",
        r'\1\2\1{{- with include "cardshare.lease" $ }}'
        r"\n\1- --lease={{ . }}\n\1{{- end }}\n"
        r"\1{{- if $.Values.kueue.enabled }}\n\1- --kueue\n\1{{- end }}\n",
    ),
    (
        r"^( *)(- --(?:listen=:8080|metrics-listen=:8081)\n)",
        r'\1\2\1{{- if ne $.Values.logFormat "json" }}\n\1- --log-format={{ $.Values.logFormat }}\n\1{{- end }}\n',
    ),
    (
        r"^( *)(- --settings-map=.*\n)",
        r'\1\2\1{{- with $.Values.web.audiences }}\n\1- --audience={{ join "," . }}\n\1{{- end }}\n',
    ),
    (
        r"^( *)(# [^\n]*--client-ca and --client-name.*\n)",
        r"\1{{- if $.Values.webhook.clientCa }}\n\1- --client-ca=/etc/cardshare/client-ca/ca.crt\n\1{{- end }}\n"
        r"\1{{- range $.Values.webhook.clientNames }}\n\1- --client-name={{ . }}\n\1{{- end }}\n\1\2",
    ),
    (
        r"^( *)(- name: token\n *mountPath: .*\n)",
        r"\1{{- if $.Values.webhook.clientCa }}\n\1- name: client-ca\n\1  mountPath: /etc/cardshare/client-ca\n"
        r"\1  readOnly: true\n\1{{- end }}\n\1\2",
    ),
    (
        r"^( *)((?:# .*\n *)?- name: token\n *projected:\n)",
        r"\1{{- if $.Values.webhook.clientCa }}\n\1- name: client-ca\n\1  configMap:\n"
        rf"\1    name: {NAME}-client-ca\n\1{{{{- end }}}}\n\1\2",
    ),
    (
        r'^(    - name: schedulerAccounts\n      expression: )"\[\]"\n',
        r'\1{{ include "cardshare.pairs" $ }}' "\n",
    ),
    (
        r"^(    - name: trustedAccounts\n(?:.*\n){3})(        \]\n)",
        r"\1          {{- range $.Values.accounts.trusted }},\n          '{{ . }}'\n          {{- end }}\n\2",
    ),
    # Device plugins: in conditions too, by the lists that hold the one that is told by its beginning.
    (
        r"^((?:          'system:.*,\n)*          'system:[^'\n=]*\*',?\n(?:          'system:.*\n)*)(        \])",
        r"\1          {{- range keys $.Values.accounts.plugins | sortAlpha }},\n"
        r"          '{{ . }}'\n          {{- end }}\n\2",
    ),
    (
        r"^(    - name: pluginNodeKeys\n(?:.*\n){2}(?:          '.*\n)+)",
        r"\1          {{- range $account, $keys := $.Values.accounts.plugins }}{{ range $keys }},\n"
        r"          '{{ $account }}={{ . }}'\n          {{- end }}{{ end }}\n",
    ),
    (
        r"^(    - name: phaseAccounts\n(?:.*\n){2}(?:          '.*\n)+)",
        r"\1          {{- range $.Values.accounts.phase }},\n          '{{ . }}'\n          {{- end }}\n",
    ),
    ("\"'warn'\"", "\"'{{ $.Values.pluginsOnOtherNodes }}'\""),
    (r"\[Warn, Audit\]", "[{{ $.Values.pluginNodeWrites }}, Audit]"),
    (r"^( *- name: touches-cards(?:-or-nearly-speaks-of-them)?\n)", rf"{_OTHERS}\1"),
    (
        r"( *)!\(request\.userInfo\.username in \[\n *'\{\{ include \"cardshare\.account\" \$ \}\}'\n *\]\)",
        r'{{ include "cardshare.schedulers" $ | indent 10 }}',
    ),
)


def write() -> None:
    """Write them."""
    for name, text in files().items():
        path = CHART / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
