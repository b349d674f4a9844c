"""Holds namespaces with a file system of their own, and cgroups, for as long as the process that started it lives.

A program on the standard library alone: ``python holder.py SPEC``, with a pipe as standard input. Its end, however it
came about, ends every process inside and removes the cgroups and the folder; see `tests.support.node.namespaces`.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

_CGROUPS: Final = Path("/sys/fs/cgroup")
# A kubelet sets these for the whole kernel unless they have these values; it is shown files that have them.
_SYSCTLS: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def hold(spec_file: Path) -> int:
    """Make the namespaces, and wait until standard input ends or all inside has ended."""
    spec = json.loads(spec_file.read_text(encoding="utf-8"))
    cgroups = _make_cgroups(spec["name"]) if spec["isolated"] else []
    kinds = ["--mount", "--pid", "--uts", "--ipc", *(["--net"] if spec["isolated"] else [])]
    own = (sys.executable, "-I", "-S", __file__, "--inside", str(spec_file))
    inside = subprocess.Popen(
        ["unshare", *kinds, "--fork", "--kill-child", "--propagation", "private", *own],
        stdin=subprocess.DEVNULL,
    )
    # The pipe is read in a child, so that this process sees whichever ends first.
    reader = subprocess.Popen(["cat"], stdout=subprocess.DEVNULL)
    while inside.poll() is None and reader.poll() is None:
        time.sleep(0.05)
    inside.kill()
    code = inside.wait()
    reader.kill()
    reader.wait()
    _remove_cgroups(cgroups)
    for folder in spec["folders"]:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def inside(spec_file: Path) -> None:
    """The first process inside: mounts, addresses, then nothing but reaping."""
    spec = json.loads(spec_file.read_text(encoding="utf-8"))
    root = _mount_root(spec)
    for source, target, mode in spec["binds"]:
        _bind(Path(source), root / target.lstrip("/"), read_only=mode == "ro")
    if spec["isolated"]:
        _shield_sysctls(root)
    ready = Path(spec["ready"])
    opened = os.open(ready.parent, os.O_PATH)
    _enter(root)
    if spec["isolated"]:
        _bring_up_network(spec)
    _run("hostname", "node-a")
    # Written where it is seen outside, although its path means nothing here any more.
    with contextlib.closing(os.fdopen(os.open(ready.name, os.O_CREAT | os.O_WRONLY, dir_fd=opened), "w")) as told:
        told.write("ready")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        with contextlib.suppress(ChildProcessError):
            os.wait()
            continue
        time.sleep(0.2)


def _mount_root(spec: dict[str, Any]) -> Path:
    """An overlay over the tree, with all that is written kept in memory."""
    memory = Path(spec["memory"])
    _run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", memory)
    upper, work, root = memory / "upper", memory / "work", memory / "root"
    for folder in (upper, work, root):
        folder.mkdir()
    layers = f"lowerdir={spec['tree']},upperdir={upper},workdir={work}"
    _run("mount", "-t", "overlay", "-o", layers, "overlay", root)
    _run("mount", "-t", "proc", "proc", root / "proc")
    _run("mount", "--rbind", "/sys", root / "sys")
    if spec["isolated"]:
        # Of the network namespace that asks; the cgroups of the machine lie in it.
        _run("mount", "-t", "sysfs", "sysfs", root / "sys")
        _run("mount", "--rbind", _CGROUPS, root / "sys/fs/cgroup")
    _run("mount", "--rbind", "/dev", root / "dev")
    for target in ("run", "tmp"):
        _run("mount", "-t", "tmpfs", "-o", f"mode={'1777' if target == 'tmp' else '0755'}", "tmpfs", root / target)
    # An overlay cannot lie on an overlay: what containers are made of is kept beside it.
    for target in spec["beside"]:
        source = memory / target.strip("/").replace("/", "-")
        source.mkdir()
        _bind(source, root / target.lstrip("/"), read_only=False)
    return root


def _bind(source: Path, target: Path, *, read_only: bool) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.touch()
    _run("mount", "--bind", source, target)
    if read_only:
        _run("mount", "-o", "remount,bind,ro", target)


def _shield_sysctls(root: Path) -> None:
    shields = root / "run" / "sysctls"
    shields.mkdir()
    for name, value in _SYSCTLS.items():
        shield = shields / name.replace("/", "-")
        shield.write_text(f"{value}\n", encoding="ascii")
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("mount", "--bind", shield, root / "proc/sys" / name)


def _enter(root: Path) -> None:
    """Make *root* the root, and let go of all others. Mounts of pods reach from kubelet to containerd by sharing."""
    old = root / "old"
    old.mkdir()
    os.chdir(root)
    _run("pivot_root", ".", "old")
    os.chroot(".")
    os.chdir("/")
    _run("mount", "--make-rprivate", "/")
    _run("umount", "--lazy", "/old")
    Path("/old").rmdir()
    _run("mount", "--make-rshared", "/")


def _bring_up_network(spec: dict[str, Any]) -> None:
    """The node's address, on a bridge that leads nowhere."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "uplink", "type", "bridge")
    _run("ip", "address", "add", f"{spec['address']}/24", "dev", "uplink")
    _run("ip", "link", "set", "uplink", "up")
    _run("ip", "route", "add", "default", "via", spec["gateway"], "dev", "uplink")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
    # Absent where the kernel has no br_netfilter: then what passes a bridge is not filtered at all.
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1", encoding="ascii")


def _make_cgroups(name: str) -> list[Path]:
    """One cgroup of that name in every hierarchy; of the older kind there are several."""
    if (_CGROUPS / "cgroup.controllers").exists():
        made = [_CGROUPS / name]
    else:
        made = [path / name for path in _CGROUPS.iterdir() if path.is_dir() and path.name != "unified"]
    for path in made:
        path.mkdir()
        for part in ("cpuset.cpus", "cpuset.mems"):
            # A new one of the older kind has no processor, and lets nobody in.
            if path.parent.name == "cpuset" and not (path / part).read_text(encoding="ascii").strip():
                (path / part).write_text((path.parent / part).read_text(encoding="ascii"), encoding="ascii")
    return made


def _remove_cgroups(cgroups: list[Path]) -> None:
    """Remove them, leaves first; the last processes may take a moment to end."""
    end_s = time.monotonic() + 10
    while left := [path for path in cgroups if path.exists()]:
        for top in left:
            for folder in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                top.rmdir()
        if time.monotonic() > end_s:
            sys.stderr.write(f"holder: still there: {', '.join(map(str, left))}\n")
            return
        time.sleep(0.05)


def _run(*argv: str | Path) -> None:
    subprocess.run([str(word) for word in argv], check=True)


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        inside(Path(sys.argv[2]))
    else:
        sys.exit(hold(Path(sys.argv[1])))
