"""Processes in namespaces of their own, as a container has them."""

import subprocess

import pytest


def unshared(*namespaces: str) -> tuple[str, ...]:
    """The words that start a process in its own *namespaces* (``--net``, ...); skips the test where that is barred."""
    words = ("unshare", "--user", "--map-root-user", *namespaces)
    try:
        subprocess.run([*words, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"no namespaces can be unshared here: {e}")
    return words
