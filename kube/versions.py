"""The order of resourceVersions of one object.

Source: Kubernetes documentation, API concepts, resource versions: from 1.35 on they are decimal numbers that only grow,
and may be compared for order. What every API server on etcd has answered before is the same, without the promise. A
version that is no such number has no order here: whoever asks has to do without one.
"""


def is_newer(version: str, than: str) -> bool:
    """Whether *version* was certainly made after *than*; False where that cannot be told."""
    if version == than or not (_is_number(version) and _is_number(than)):
        return False
    return (len(version), version) > (len(than), than)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit() and (version[0] != "0" or version == "0")
