"""The annotations of HAMi's protocol for NVIDIA cards and their fixed words (protocol reference, hami 1.3 to 1.5)."""

from typing import Final

from core.hami_lock import BIND_PHASE, BIND_TIME, NODE, TIME
from core.names import PLACE_WISHES, TYPE_WISHES
from core.settings import DialectName
from core.sharing import order

NAME: Final = DialectName("hami")
REGISTER: Final = "hami.io/node-nvidia-register"
LINKS: Final = "hami.io/node-nvidia-score"

TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
RESERVATIONS: Final = "hami.io/vgpu-mig-allocations"
# What tells how far scheduler and plugin are; nothing of what a pod holds stands there.
MARKS: Final[frozenset[str]] = frozenset({TO_ALLOCATE, TIME, BIND_TIME, BIND_PHASE})
ASSIGNMENT_KEYS: Final[frozenset[str]] = MARKS | {ALLOCATED, RESERVATIONS, NODE}

USE_UUID: Final = "nvidia.com/use-gpuuuid"
NO_USE_UUID: Final = "nvidia.com/nouse-gpuuuid"
MODE: Final = "nvidia.com/vgpu-mode"
# Preferences that no other protocol knows: a pod that has one asks HAMi.
OWN_WISHES: Final[frozenset[str]] = frozenset({USE_UUID, NO_USE_UUID, MODE, *order.KEYS})
PREFERENCES: Final[frozenset[str]] = OWN_WISHES | TYPE_WISHES | PLACE_WISHES

NVIDIA: Final = "NVIDIA"
# The mode of cards that a node serves over the network to pods of other nodes (hami 1.1).
REMOTE: Final = "remote"
SCHEDULER: Final = "hami-scheduler"
# NVIDIA's own plugin sells whole cards by this name.
GPU: Final = "nvidia.com/gpu"
