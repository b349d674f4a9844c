"""What `kubectl kustomize` makes of an overlay of deploy/, as far as these overlays go; needs no kubectl.

tests/e2e installs what kubectl itself makes of them.
"""

import copy
import re
from pathlib import Path
from typing import Any, Final

import yaml

DEPLOY: Final = Path(__file__).resolve().parents[3] / "deploy"

Json = dict[str, Any]


def overlay(name: str) -> list[Json]:
    """Every object of an overlay."""
    return _built(DEPLOY / "overlays" / name)


def with_component(name: str, *components: str) -> list[Json]:
    """The same, with components added; their images are those of the overlay `default`."""
    found = overlay(name)
    for component in components:
        found = _added(DEPLOY / "components" / component, found)
    for image in yaml.safe_load((DEPLOY / "overlays/default/kustomization.yaml").read_text(encoding="utf-8"))["images"]:
        _tag(found, image["name"], image["newTag"])
    return found


def _built(folder: Path) -> list[Json]:
    return _added(folder, [])


def _added(folder: Path, found: list[Json]) -> list[Json]:
    """*found*, which a component changes, and what the folder adds."""
    said = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    unknown = said.keys() - {"apiVersion", "kind", "resources", "components", "patches", "labels", "images"}
    assert not unknown, f"{folder}: {unknown} is not read here"
    for name in said["resources"]:
        path = folder / name
        if path.is_dir():
            found += _built(path.resolve())
        else:
            found += yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    for name in said.get("components", ()):
        found = _added((folder / name).resolve(), found)
    for pairs in said.get("labels", ()):
        for document in found:
            document["metadata"].setdefault("labels", {}).update(pairs["pairs"])
    for patch in said.get("patches", ()):
        _patch(found, patch, folder)
    for image in said.get("images", ()):
        _tag(found, image["name"], image["newTag"])
    return found


def _patch(documents: list[Json], patch: Json, folder: Path) -> None:
    text = patch.get("patch") or (folder / patch["path"]).read_text(encoding="utf-8")
    given = yaml.safe_load(text)
    if "target" not in patch:
        (document,) = [one for one in documents if _key(one) == _key(given)]
        document["data"].update(given["data"])
        return
    target = patch["target"]
    chosen = [
        one
        for one in documents
        if re.fullmatch(target.get("kind", ".*"), one["kind"]) and re.fullmatch(target["name"], one["metadata"]["name"])
    ]
    assert chosen, f"{folder}: {target} names nothing"
    for document in chosen:
        if isinstance(given, list):
            _operate(document, given)
        elif given.get("$patch") == "delete":
            documents.remove(document)
        else:
            assert given["metadata"].keys() == {"name", "annotations"}, "no other merge is read here"
            document["metadata"].setdefault("annotations", {}).update(given["metadata"]["annotations"])


def _key(document: Json) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def _operate(document: Json, operations: list[Json]) -> None:
    """JSON patch, as far as it is used."""
    for each in operations:
        *way, last = [int(part) if part.isdigit() else part for part in each["path"].strip("/").split("/")]
        place: Any = document
        for part in way:
            place = place[part]
        match each["op"]:
            case "test":
                assert place[last] == each["value"], each
            case "add":
                place.insert(len(place) if last == "-" else last, copy.deepcopy(each["value"]))
            case op:
                assert op == "replace", each
                place[last] = each["value"]


def _tag(value: Any, name: str, tag: str) -> None:
    if isinstance(value, dict):
        if value.get("image") == name:
            value["image"] = f"{name}:{tag}"
        for each in value.values():
            _tag(each, name, tag)
    elif isinstance(value, list):
        for each in value:
            _tag(each, name, tag)
