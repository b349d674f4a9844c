"""Which variables and mounts of containers any rule looks at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import watched


@pytest.mark.parametrize("name", [*sorted(watched.NAMES), *(f"{one}X" for one in watched._PREFIXES)])
def test_a_watched_variable_is_found_wherever_it_stands_among_others(name):
    assert watched.is_watched(name)
    for names in ([name], [name, "RANK"], ["RANK", name], ["", name, "A B"]):
        assert watched.may_be_watched(names)


def test_variables_that_nobody_watches_are_not_looked_at_one_by_one():
    assert not watched.may_be_watched([])
    assert not watched.may_be_watched(["RANK", "CUDA_HOME", "NVIDIA_DRIVER_CAPABILITIES", "PATH"])


def walked(path):
    """*path* from the root, name by name, as a file system walks it."""
    there: list[str] = []
    for name in path.split("/"):
        if name == "..":
            there = there[:-1]
        elif name not in ("", "."):
            there.append(name)
    return "/" + "/".join(there)


PARTS = ["/", "//", ".", "..", "a", "etc", "ld.so.preload", ".x", "tmp", "vgpu", "run", "nvidia-container-devices"]
PATHS = st.lists(st.sampled_from(PARTS)).map("".join)


@given(PATHS)
def test_a_path_is_the_one_that_a_walk_from_the_root_ends_at(path):
    assert watched.absolute(path) == walked(path)


@given(PATHS)
def test_a_mount_is_kept_if_its_walk_ends_at_a_kept_path_or_below(path):
    there = walked(path) + "/"
    kept = (*(f"{one}/" for one in watched._KEPT_PATHS), *watched._DEVICE_LISTS)
    assert watched.is_kept(path) == there.startswith(kept)


@given(st.lists(PATHS, max_size=3))
def test_mounts_are_looked_at_one_by_one_wherever_one_of_them_is_kept(paths):
    assert watched.may_be_kept(paths) or not any(map(watched.is_kept, paths))


def test_mounts_that_nobody_keeps_are_not_looked_at_one_by_one():
    assert not watched.may_be_kept([])
    assert not watched.may_be_kept(["/data", "/var/run/secrets/kubernetes.io/serviceaccount", "/tmp", "/dev/shm"])
