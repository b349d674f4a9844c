"""Pods that tests have as the controller reads them, as admission reads them."""

from core.model import Pod, ReviewedPod


def reviewed(pod: Pod) -> ReviewedPod:
    """*pod* as it would be under review."""
    shared = set(ReviewedPod._fields) & set(Pod._fields)
    return ReviewedPod(**{name: getattr(pod, name) for name in shared})
