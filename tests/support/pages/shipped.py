"""What deploy/base says, object by object, and what the CEL in it names."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from core.admission.rulebook import Rulebook, rulebook
from core.catalog import standard_catalog
from core.settings import Settings, Tables
from sandbox.api.webhooks import Allows, met, nobody

DEPLOY = Path(__file__).parents[3] / "deploy"
NAMESPACE = "cardshare-system"

Json = dict[str, Any]


def base() -> tuple[Json, ...]:
    """Every object of deploy/base, as its kustomization lists them."""
    listed = yaml.safe_load((DEPLOY / "base/kustomization.yaml").read_text())["resources"]
    texts = ((DEPLOY / "base" / name).read_text() for name in listed)
    return tuple(doc for text in texts for doc in yaml.load_all(text, Loader=yaml.CSafeLoader))


OBJECTS = base()


def one(kind: str, name: str, namespace: str | None = None) -> Json:
    """The one object of deploy/base that is so named."""
    (found,) = [
        obj
        for obj in OBJECTS
        if obj["kind"] == kind
        and obj["metadata"]["name"] == name
        and namespace in {None, obj["metadata"].get("namespace")}
    ]
    return found


def templates() -> Iterator[tuple[str, Json]]:
    """The pod template of every workload, by what the tests call it."""
    for obj in OBJECTS:
        spec = obj.get("spec", {})
        if obj["kind"] == "CronJob":
            yield "CronJob", spec["jobTemplate"]["spec"]["template"]
        elif "template" in spec:
            yield f"{obj['kind']} {obj['metadata']['name']}", spec["template"]


TEMPLATES = dict(templates())


def container(title: str) -> Json:
    """The only container of a workload."""
    (found,) = TEMPLATES[title]["spec"]["containers"]
    return dict(found)


MUTATING = "MutatingWebhookConfiguration"
VALIDATING = "ValidatingWebhookConfiguration"


def conditions(entry: str, kind: str = MUTATING) -> Mapping[str, str]:
    """The CEL of a webhook's entry, by the condition's name."""
    webhooks = one(kind, "cardshare")["webhooks"]
    (found,) = [webhook for webhook in webhooks if webhook["name"] == entry]
    return {condition["name"]: condition["expression"] for condition in found["matchConditions"]}


def words(expression: str) -> set[str]:
    """Every text constant of a CEL expression."""
    return set(re.findall(r"'([^']*)'", expression))


CHIP = "huawei.com/Ascend"
OF_A_CHIP = ("-devices-to-allocate", "-devices-allocated", "-uuid")


def book() -> Rulebook:
    """What the core judges by as shipped."""
    return rulebook(Settings(), Tables(), standard_catalog())


def policy(name: str) -> Json:
    """The spec of a policy."""
    return dict(one("ValidatingAdmissionPolicy", name)["spec"])


def entries(spec: Json, variable: str) -> list[str]:
    """The list that a variable of a policy is."""
    (expression,) = [one["expression"] for one in spec["variables"] if one["name"] == variable]
    return re.findall(r"'([^']*)'", expression)


def denials(name: str, allows: Allows = nobody, **variables: Any) -> list[str]:
    """The codes with which a policy denies a write; *variables* are those of CEL, *allows* is its authorizer."""
    spec = policy(name)
    known = {each["name"]: each["expression"] for each in spec["variables"]}

    def written_out(expression: str) -> str:
        return re.sub(r"variables\.(\w+)", lambda found: f"({written_out(known[found[1]])})", expression)

    def holds(expression: str) -> bool:
        variables.setdefault("oldObject", None)
        return met([{"name": "c", "expression": written_out(expression)}], variables, allows)

    if not holds(" && ".join(f"({each['expression']})" for each in spec["matchConditions"])):
        return []
    return [each["message"].split()[0] for each in spec["validations"] if not holds(each["expression"])]


# What of an object is looped over: a list that stands in the expression itself has the length that is seen.
LOOP = re.compile(r"((?:object|oldObject|c|t)\.[\w.?]+(?:\.orValue\([^)]*\))?)\)?\.(?:exists|all|map|filter)\(")


def certs_of(component: str) -> Json:
    """The Secret that a Deployment mounts."""
    volumes = TEMPLATES[f"Deployment cardshare-{component}"]["spec"]["volumes"]
    (found,) = [volume["secret"] for volume in volumes if "secret" in volume]
    return dict(found)


def arguments(title: str) -> list[str]:
    """The arguments; paths of mounted files lead to deploy/, which exists."""
    return [re.sub(r"=/etc/cardshare/.*", f"={DEPLOY}", arg) for arg in container(title)["args"]]
