"""The volumes of a pod: from its spec's JSON to `PodVolumes`."""

import msgspec

from core.model import NO_VOLUMES, Disk, PodVolumes
from core.wire.objects import Presence


class _ClaimSource(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    claim_name: str = ""


class _GceDisk(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    pd_name: str = ""
    read_only: bool | None = False


class _AwsDisk(msgspec.Struct, frozen=True, gc=False):
    volume_id: str = msgspec.field(default="", name="volumeID")


class _Rbd(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    monitors: tuple[str, ...] | None = None
    pool: str | None = "rbd"
    image: str = ""
    read_only: bool | None = False


class _Iscsi(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    iqn: str = ""
    read_only: bool | None = False


class _ImageSource(msgspec.Struct, frozen=True, gc=False):
    reference: str | None = ""


class VolumeObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One volume of a pod, with the fields that affect its node."""

    name: str = ""
    persistent_volume_claim: _ClaimSource | None = None
    # A generic ephemeral volume is a claim that is created for the pod and bound like any other.
    ephemeral: Presence | None = None
    # Disks that only one pod of a node may write, and that most clouds attach to one node at a time.
    gce_persistent_disk: _GceDisk | None = None
    aws_elastic_block_store: _AwsDisk | None = msgspec.field(default=None, name="awsElasticBlockStore")
    rbd: _Rbd | None = None
    iscsi: _Iscsi | None = None
    image: _ImageSource | None = None


def volumes_of(found: tuple[VolumeObject, ...] | None) -> PodVolumes:
    """Return the volumes of a pod that conflict with other pods or bind it to nodes."""
    claims: list[str] = []
    ephemeral: list[str] = []
    disks: list[Disk] = []
    for one in found or ():
        if one.persistent_volume_claim is not None:
            claims.append(one.persistent_volume_claim.claim_name)
        elif one.ephemeral is not None:
            ephemeral.append(one.name)
        elif (disk := _disk(one)) is not None:
            disks.append(disk)
    if not (claims or ephemeral or disks):
        return NO_VOLUMES
    return PodVolumes(tuple(dict.fromkeys(claims)), tuple(ephemeral), tuple(disks))


def _disk(volume: VolumeObject) -> Disk | None:
    """Return the disk of *volume*. Source: kube-scheduler's plugin VolumeRestrictions, isVolumeConflict."""
    name = volume.name
    if (gce := volume.gce_persistent_disk) is not None:
        return Disk(name, (f"gcePersistentDisk {gce.pd_name}",), bool(gce.read_only))
    if (aws := volume.aws_elastic_block_store) is not None:
        return Disk(name, (f"awsElasticBlockStore {aws.volume_id}",))
    if (rbd := volume.rbd) is not None:
        image = f"{rbd.pool or 'rbd'}/{rbd.image}"
        return Disk(name, tuple([f"rbd {one} {image}" for one in rbd.monitors or ()]), bool(rbd.read_only))
    if (iscsi := volume.iscsi) is not None:
        return Disk(name, (f"iscsi {iscsi.iqn}",), bool(iscsi.read_only))
    return None
