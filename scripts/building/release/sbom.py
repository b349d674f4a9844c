"""What a lock names, as a software bill of materials: CycloneDX 1.6 in JSON."""

import importlib.metadata
import json
import re
from typing import Any, Final

_ENTRY: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\\n]+)(?P<marker> ; [^\\\n]+)?"
    r"(?P<hashes>(?:\s*\\\n\s+--hash=sha256:[0-9a-f]+)+)",
    re.MULTILINE,
)


def sbom(lock: str, *, name: str, version: str) -> str:
    """The bill of *name* in *version*, which runs with what the text of *lock* names; the same text every time.

    A package has the SHA-256 of each of its files of which one is installed, as properties.
    """
    components = [_component(found) for found in _ENTRY.finditer(lock)]
    root = f"pkg:pypi/{name}@{version}"
    bill: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": name,
                "version": version,
                "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [one["bom-ref"] for one in components]}],
    }
    return json.dumps(bill, indent=2) + "\n"


def _component(found: re.Match[str]) -> dict[str, Any]:
    name, version = found["name"].lower(), found["version"]
    purl = f"pkg:pypi/{name}@{version}"
    properties = [
        {"name": "cardshare:sha256", "value": digest}
        for digest in sorted(re.findall(r"sha256:([0-9a-f]+)", found["hashes"]))
    ]
    if found["marker"]:
        properties.append({"name": "cardshare:marker", "value": found["marker"].removeprefix(" ; ").strip()})
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    licence = _licence(name)
    return component | ({"licenses": [licence]} if licence else {}) | {"properties": properties}


def _licence(package: str) -> dict[str, Any] | None:
    """As the installed package says it; None where it is not installed, or says nothing that is short."""
    try:
        said = importlib.metadata.metadata(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    if "License-Expression" in said:
        return {"expression": said["License-Expression"]}
    name = next(iter(said.get_all("License") or ()), "")
    return {"license": {"name": name}} if name and "\n" not in name and len(name) < 100 else None
