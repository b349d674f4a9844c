"""The order of resourceVersions of one object.

Source: Kubernetes documentation, API concepts, resource versions: since 1.35 they are increasing decimal numbers that
may be compared for order. Earlier API servers on etcd behave the same without the promise. A version that is not such a
number has no order here, and callers must do without one.
"""


def is_newer(version: str, than: str) -> bool:
    """Return whether *version* is certainly later than *than*; False if that is unknown."""
    if version == than or not (_is_number(version) and _is_number(than)):
        return False
    return (len(version), version) > (len(than), than)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit() and (version[0] != "0" or version == "0")
