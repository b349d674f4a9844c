"""The findings of ``kubectl cards doctor`` that follow from nodes and pods, kept current while these are followed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

from cli.doctor_checks import Facts, Finding, RunningPod, account_of, examine_nodes_and_pods, is_plugin
from core.catalog import Catalog
from core.ledger import Ledger
from core.model import Pod, PodUid

# More are only counted.
_FINDINGS_MAX: Final = 200
# Some findings depend on how long a pod has waited.
_AGAIN_S: Final = 60.0
# At most a twentieth of the time.
_LEAST_S, _REST_PER_LOOK = 2.0, 19.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """At most 200 of *count* findings, as in ``doctor``."""

    findings: tuple[Finding, ...]
    count: int


class Examining:
    """Examines copies of the ledger in another thread. found: the last findings, None before the first."""

    def __init__(self, catalog: Catalog) -> None:
        """Prepare; `run` examines."""
        self.found: Findings | None = None
        self.changed: Final = asyncio.Event()
        self._catalog: Final = catalog
        self._plugins: Final[dict[PodUid, RunningPod]] = {}

    def told(self, uid: PodUid, pod: Pod | None) -> None:
        """Note a pod on a node, None if it is gone; those of device plugins are examined."""
        before = self._plugins.pop(uid, None)
        if pod is not None:
            account = account_of(pod.namespace, pod.service_account)
            if is_plugin(account, self._catalog):
                made = RunningPod(key=pod.key, account=account, node=pod.node_name, image="", ready=pod.ready)
                self._plugins[uid] = made
        if before != self._plugins.get(uid):
            self.changed.set()

    async def run(
        self, ledger: Callable[[], Ledger | None], unbound: Callable[[], Iterable[Pod]], tell: Callable[[], None]
    ) -> NoReturn:
        """Examine after changes; call *tell* if the findings differ.

        Args:
            ledger: returns a copy, None before the nodes are read.
            unbound: returns the pods that are on no node.
            tell: is called without arguments.
        """
        while True:
            self.changed.clear()
            begun_s = time.monotonic()
            copy = ledger()
            if copy is not None and await self._differ(copy, tuple(unbound())):
                tell()
            rest_s = max(_LEAST_S, _REST_PER_LOOK * (time.monotonic() - begun_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), _AGAIN_S)
            await asyncio.sleep(rest_s if copy is not None else 0.0)

    async def _differ(self, ledger: Ledger, unbound: tuple[Pod, ...]) -> bool:
        facts = Facts(
            name="",
            namespace="",
            now_s=time.time(),
            catalog=ledger.catalog,
            settings=ledger.settings,
            tables=ledger.tables,
            ledger=ledger,
            pods=unbound,
            plugins=tuple(self._plugins.values()),
        )
        found = await asyncio.to_thread(examine_nodes_and_pods, facts)
        before, self.found = self.found, Findings(findings=found[:_FINDINGS_MAX], count=len(found))
        return before != self.found
