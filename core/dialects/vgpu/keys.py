"""The annotations of the vGPU protocol and their fixed words (protocol reference, nvidia 1.4, 1.5)."""

from typing import Final

from core.names import PLACE_WISHES, TYPE_WISHES

# Written by plugins up to v1.12.0 only, which also list their cards in a new order every time.
HANDSHAKE: Final = "volcano.sh/node-vgpu-handshake"

NODE: Final = "volcano.sh/vgpu-node"
TIME: Final = "volcano.sh/vgpu-time"
IDS: Final = "volcano.sh/vgpu-ids-new"
TO_ALLOCATE: Final = "volcano.sh/devices-to-allocate"
BIND_TIME: Final = "volcano.sh/bind-time"
BIND_PHASE: Final = "volcano.sh/bind-phase"

MODE: Final = "volcano.sh/vgpu-mode"
USE_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
NO_USE_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
GROUP_POLICY: Final = "volcano.sh/vgpu-podgroup-policy"
SPREAD_GROUP: Final = "spread"
PREFERENCES: Final = frozenset({MODE, USE_UUID, NO_USE_UUID, GROUP_POLICY}) | TYPE_WISHES | PLACE_WISHES

ALLOCATING: Final = "allocating"
SUCCESS: Final = "success"
FAILED: Final = "failed"

# How far scheduler and plugin are with a pod; what it holds stands elsewhere.
MARKS: Final = frozenset({TIME, TO_ALLOCATE, BIND_TIME, BIND_PHASE})
ASSIGNMENT_KEYS: Final = frozenset({NODE, TIME, IDS, TO_ALLOCATE, BIND_TIME, BIND_PHASE})
