"""Whether this machine can have a real node, before anything is built."""

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PROGRAMS: Final = ("unshare", "nsenter", "mount", "umount", "pivot_root", "chroot", "hostname", "dpkg-deb", "gpgv")
# CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_CHROOT, CAP_MKNOD. Source: linux/capability.h.
_CAPABILITIES: Final = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_MKNOD": 27}


def reason_against(environ: Mapping[str, str]) -> str:
    """Why there can be no real node here; "" if there can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"a real node needs Linux on x86_64; this is {platform.system()} on {platform.machine()}"
    if os.geteuid() != 0:
        return "a real node needs root, for namespaces, mounts and cgroups"
    status = Path("/proc/self/status").read_text(encoding="ascii")
    held = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    if missing := [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]:
        return f"a real node needs {', '.join(missing)}"
    path = environ.get("PATH", os.defpath)
    if missing := [name for name in _PROGRAMS if not shutil.which(name, path=f"{path}:/usr/sbin:/sbin")]:
        return f"a real node needs {', '.join(missing)} (Debian: util-linux, mount, hostname, dpkg, gpgv)"
    if not any(Path("/sys/fs/cgroup").iterdir()):
        return "a real node needs cgroups under /sys/fs/cgroup"
    return ""
