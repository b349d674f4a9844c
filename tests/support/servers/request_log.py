"""What the product's accounts asked of a real API server, by the server's own audit log."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ACCOUNTS: Final = (
    *(
        f"system:serviceaccount:cardshare-system:{name}"
        for name in ("cardshare-controller", "cardshare-certs", "cardshare-webhook")
    ),
    "system:serviceaccount:cardshare-shadow:cardshare-shadow",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: by which account and program, for what, and the HTTP status of its answer.

    resource holds the subresource too, as in rules.
    """

    account: str
    agent: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    status: int


def write_policy(folder: Path) -> tuple[str, ...]:
    """Write a policy that notes the requests of our accounts, and return the API server's flags for it."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": list(_ACCOUNTS)}, {"level": "None"}],
    }
    path = folder / "audit-policy.json"
    path.write_text(json.dumps(policy), encoding="utf-8")
    return f"--audit-policy-file={path}", f"--audit-log-path={_log(folder)}", "--audit-log-mode=blocking"


def size_bytes(folder: Path) -> int:
    """How long the log is by now."""
    return _log(folder).stat().st_size


def read(folder: Path, start: int = 0) -> Iterator[Asked]:
    """The requests for resources that are noted from byte *start* on."""
    for line in _log(folder).read_bytes()[start:].splitlines():
        event = json.loads(line)
        about = event.get("objectRef")
        if about is None:
            continue
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        yield Asked(
            account=event["user"]["username"].rpartition(":")[2],
            agent=event.get("userAgent", ""),
            verb=event["verb"],
            group=about.get("apiGroup", ""),
            resource=resource,
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            status=(event.get("responseStatus") or {}).get("code", 0),
        )


def _log(folder: Path) -> Path:
    return folder / "audit.log"
