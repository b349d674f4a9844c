"""Promises of runtime classes: what a pod is given by the one that it names."""

from typing import Any, Final

from tests.support.promises.promises import Rows, World, pod, promise, said

_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
_ADDED: Final = ("overhead", "nodeSelector", "tolerations")


@promise
async def a_pod_is_given_what_its_runtime_class_has(world: World) -> Rows:
    await world.rest.made(_CLASSES, {"metadata": {"name": f"bare-{world.namespace}"}, "handler": "h"})
    await world.rest.made(
        _CLASSES,
        {
            "metadata": {"name": f"full-{world.namespace}"},
            "handler": "h",
            "overhead": {"podFixed": {"cpu": "100m", "memory": "64Mi"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "t", "operator": "Exists"}]},
        },
    )
    specs: dict[str, dict[str, Any]] = {
        "none": {"runtimeClassName": f"none-{world.namespace}"},
        "bare": {"runtimeClassName": f"bare-{world.namespace}"},
        "full": {"runtimeClassName": f"full-{world.namespace}"},
        "same": {"runtimeClassName": f"full-{world.namespace}", "nodeSelector": {"a": "b", "c": "d"}},
        "other node": {"runtimeClassName": f"full-{world.namespace}", "nodeSelector": {"a": "c"}},
        "other overhead": {"runtimeClassName": f"full-{world.namespace}", "overhead": {"cpu": "1"}},
    }
    rows: Rows = []
    try:
        for name, spec in specs.items():
            answer = await world.rest.post(f"{world.pods}?dryRun=All", pod("p", spec))
            given = {key: answer.body["spec"].get(key) for key in _ADDED} if answer.status < 400 else {}
            rows.append([name, *said(answer), given])
    finally:
        for kind in ("bare", "full"):
            await world.rest.delete(f"{_CLASSES}/{kind}-{world.namespace}")
    return rows
