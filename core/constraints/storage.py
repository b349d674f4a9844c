"""The storage of the cluster by name and class, and what has changed."""

from collections.abc import Mapping
from typing import Final

from core.claims import Attachment, Capacity, Claim, Driver, NodeDrivers, StorageClass, StorageKind, Volume
from core.constraints.constraint import add
from core.model import NodeName


class Storage:
    """The API server's state of storage, shared by a ledger and its forks.

    Attributes:
        unread: the kinds that are not known yet, or may not be read.
        changed: changed claims, volumes and classes, by kind and name; the reader removes them.
    """

    def __init__(self) -> None:
        self.unread: Final[dict[StorageKind, None]] = dict.fromkeys(StorageKind)
        self.changed: Final[dict[tuple[StorageKind, str], None]] = {}
        self.claims: Final[dict[str, Claim]] = {}
        self.volumes: Final[dict[str, Volume]] = {}
        self.classes: Final[dict[str, StorageClass]] = {}
        self.limits: Final[dict[NodeName, Mapping[str, int]]] = {}
        self.running: Final[dict[NodeName, frozenset[str]]] = {}
        self.drivers: Final[dict[str, Driver]] = {}
        self.capacities: Final[dict[str, dict[str, Capacity]]] = {}
        # Attachments by name, by node and by volume.
        self.attachments: Final[dict[str, Attachment]] = {}
        self.attached: Final[dict[NodeName, dict[str, Attachment]]] = {}
        self.attached_to: Final[dict[str, dict[NodeName, int]]] = {}
        # Claims with a selected node that are not bound yet.
        self.selected: Final[dict[str, None]] = {}
        # The number of limited nodes of each driver; and volumes by class.
        self.limited: Final[dict[str, int]] = {}
        self.by_class: Final[dict[str, dict[str, None]]] = {}
        # Volumes by driver and handle; several may be the same volume of the driver.
        self.by_handle: Final[dict[tuple[str, str], dict[str, None]]] = {}
        # Volumes that are promised to a claim, by name, until the API server shows it.
        self.promised: Final[dict[str, str]] = {}

    def set_claim(self, claim: Claim) -> bool:
        """Record an added or changed claim; return whether anything but its version changed."""
        before = self.claims.get(claim.key)
        self.claims[claim.key] = claim
        if claim.selected_node and not claim.bound:
            self.selected[claim.key] = None
        else:
            self.selected.pop(claim.key, None)
        if before is not None and before._replace(version=claim.version) == claim:
            return False
        self.changed[StorageKind.CLAIMS, claim.key] = None
        return True

    def remove_claim(self, key: str) -> bool:
        """Remove a claim."""
        self.changed[StorageKind.CLAIMS, key] = None
        self.selected.pop(key, None)
        return self.claims.pop(key, None) is not None

    def set_volume(self, volume: Volume) -> None:
        """Record an added or changed volume."""
        before = self.volumes.get(volume.name)
        self.volumes[volume.name] = volume
        if before is not None and before._replace(version=volume.version) == volume:
            return
        if before is not None:
            self._leave(before)
        self.by_class.setdefault(volume.storage_class, {})[volume.name] = None
        self.by_handle.setdefault((volume.driver, volume.handle), {})[volume.name] = None
        if self.promised.get(volume.name) == volume.claim:
            del self.promised[volume.name]
        self._volume_changed(volume)

    def remove_volume(self, name: str) -> None:
        """Remove a volume."""
        before = self.volumes.pop(name, None)
        self.promised.pop(name, None)
        if before is not None:
            self._leave(before)
            self._volume_changed(before)

    def _leave(self, volume: Volume) -> None:
        there = self.by_class[volume.storage_class]
        there.pop(volume.name, None)
        if not there:
            del self.by_class[volume.storage_class]
        alike = self.by_handle[volume.driver, volume.handle]
        del alike[volume.name]
        if not alike:
            del self.by_handle[volume.driver, volume.handle]

    def is_shared(self, driver: str, handle: str) -> bool:
        """Return whether several volumes are the same volume of their driver."""
        return bool(driver) and len(self.by_handle.get((driver, handle), ())) > 1

    def _volume_changed(self, volume: Volume) -> None:
        self.changed[StorageKind.VOLUMES, volume.name] = None
        if volume.driver:
            for name in self.by_handle.get((volume.driver, volume.handle), ()):
                self.changed[StorageKind.VOLUMES, name] = None
        if not volume.claim_uid:
            # Any claim of its class may be bound to it.
            self.changed[StorageKind.CLASSES, volume.storage_class] = None

    def promise(self, name: str, claim: str) -> None:
        """Promise a volume to a claim, or to none if that is ""."""
        if claim:
            self.promised[name] = claim
        elif self.promised.pop(name, None) is None:
            return
        if name in self.volumes:
            self.changed[StorageKind.CLASSES, self.volumes[name].storage_class] = None

    def set_class(self, found: StorageClass) -> None:
        """Record an added or changed class."""
        if self.classes.get(found.name) != found:
            self.classes[found.name] = found
            self.changed[StorageKind.CLASSES, found.name] = None

    def remove_class(self, name: str) -> None:
        """Remove a class."""
        self.classes.pop(name, None)
        self.changed[StorageKind.CLASSES, name] = None

    def set_driver(self, driver: Driver) -> bool:
        """Record an added or changed driver; return whether it changed where its volumes can be used."""
        before, must_run = self.drivers.get(driver.name), self.must_run(driver.name)
        self.drivers[driver.name] = driver
        if before != driver:
            self._driver_changed(driver.name)
        return must_run is not driver.must_run

    def remove_driver(self, name: str) -> bool:
        """Remove a driver; return whether that changed where its volumes can be used."""
        must_run = self.must_run(name)
        if self.drivers.pop(name, None) is not None:
            self._driver_changed(name)
        return must_run

    def must_run(self, name: str) -> bool:
        """Return whether pods with volumes of a driver only go to nodes where it runs."""
        driver = self.drivers.get(name)
        return driver is not None and driver.must_run

    def _driver_changed(self, name: str) -> None:
        for one in self.classes.values():
            if one.provisioner == name:
                self.changed[StorageKind.CLASSES, one.name] = None

    def set_capacity(self, capacity: Capacity) -> None:
        """Record an added or changed capacity."""
        there = self.capacities.setdefault(capacity.storage_class, {})
        if there.get(capacity.key) != capacity:
            there[capacity.key] = capacity
            self.changed[StorageKind.CLASSES, capacity.storage_class] = None

    def remove_capacity(self, capacity: Capacity) -> None:
        """Remove a capacity."""
        there = self.capacities.get(capacity.storage_class, {})
        if there.pop(capacity.key, None) is not None:
            self.changed[StorageKind.CLASSES, capacity.storage_class] = None
        if not there:
            self.capacities.pop(capacity.storage_class, None)

    def set_limits(self, found: NodeDrivers) -> bool:
        """Record the drivers of a node, and how many volumes it can attach; return whether that changed."""
        before, ran = self.limits.get(found.node, {}), self.running.get(found.node, frozenset())
        if found.drivers:
            self.running[found.node] = found.drivers
        else:
            self.running.pop(found.node, None)
        if before == found.limits:
            return ran != found.drivers
        for limits, by in ((before, -1), (found.limits, 1)):
            for driver in limits:
                add(self.limited, driver, by)
        if found.limits:
            self.limits[found.node] = found.limits
        else:
            self.limits.pop(found.node, None)
        return True

    def set_attachment(self, found: Attachment) -> set[NodeName]:
        """Record an attachment, complete or in progress; return the nodes for which it changes."""
        if self.attachments.get(found.name) == found:
            return set()
        touched = self.remove_attachment(found.name)
        self.attachments[found.name] = found
        self.attached.setdefault(found.node, {})[found.name] = found
        add(self.attached_to.setdefault(found.volume, {}), found.node, 1)
        return touched | {found.node}

    def remove_attachment(self, name: str) -> set[NodeName]:
        """Remove an attachment; return the nodes for which it changes."""
        before = self.attachments.pop(name, None)
        if before is None:
            return set()
        there = self.attached[before.node]
        del there[name]
        if not there:
            del self.attached[before.node]
        nodes = self.attached_to[before.volume]
        add(nodes, before.node, -1)
        if not nodes:
            del self.attached_to[before.volume]
        return {before.node}

    def handles_attached(self, node: NodeName, driver: str) -> set[str]:
        """Return what *driver* has attached or is attaching to *node*, whether or not a pod uses it."""
        found = (self.volumes.get(one.volume) for one in self.attached.get(node, {}).values() if one.driver == driver)
        return {volume.handle for volume in found if volume is not None and volume.driver}

    def attached_by(self, key: str) -> tuple[str, str]:
        """Return the driver that attaches a claim's volume, and the handle; ("", "") if unknown."""
        claim = self.claims.get(key)
        if claim is None:
            return "", ""
        if claim.volume:
            volume = self.volumes.get(claim.volume)
            return (volume.driver, volume.handle) if volume is not None else ("", "")
        found = self.classes.get(claim.storage_class)
        return (found.provisioner, f"claim {key}") if found is not None else ("", "")
