"""The playable device plugins by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox.nodes.plugin_port import DevicePlugin
from sandbox.players import vendors
from sandbox.players.ascend_hami import AscendHamiPlugin
from sandbox.players.calls import Api
from sandbox.players.gpushare import SharePlugin
from sandbox.players.hami import HamiPlugin
from sandbox.players.hardware import OptionsError
from sandbox.players.mindcluster import MindClusterPlugin
from sandbox.players.nvidia import NvidiaPlugin
from sandbox.players.vgpu import VgpuPlugin

_KINDS: Final[Mapping[str, Callable[[str, Mapping[str, Any], Api], DevicePlugin]]] = {
    "vgpu": VgpuPlugin.from_options,
    "gpushare": SharePlugin.from_options,
    "ascend-hami": AscendHamiPlugin.from_options,
    "mindcluster": MindClusterPlugin.from_options,
    "hami": HamiPlugin.from_options,
    "nvidia": NvidiaPlugin.from_options,
    **{kind: vendors.maker(kind) for kind in vendors.VENDORS},
}
KINDS: Final = frozenset(_KINDS)


def build(kind: str, node_name: str, options: Mapping[str, Any], client: Api) -> DevicePlugin:
    """Build the plugin *kind* of node *node_name*.

    Args:
        kind: one of `KINDS`.
        node_name: its node.
        options: its cards and configuration as plain data, see ``from_options`` of the plugin.
        client: an API client with the plugin's own account.

    Raises:
        OptionsError: the kind is unknown, or a key or value is invalid.
    """
    maker = _KINDS.get(kind)
    if maker is None:
        raise OptionsError(f"unknown device plugin {kind!r}; write one of {', '.join(sorted(_KINDS))}")
    return maker(node_name, options, client)
