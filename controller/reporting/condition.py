"""The configuration's state in the condition of the controller's own pod, and in events."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.actions import Announce, Subject
from runtime.configuration import LAST_GOOD, ActiveConfiguration

_EVENT_MAX: Final = 900


class ConfigurationReason(StrEnum):
    """The reason of the condition; the configuration is in force for all reasons except REFUSED."""

    ACCEPTED = "Accepted"
    ACCEPTED_WITH_NOTES = "AcceptedWithNotes"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationVerdict:
    """Whether the last edit of the configuration is in force, with a one-word reason and a message."""

    reason: ConfigurationReason
    message: str

    @property
    def accepted(self) -> bool:
        """Whether it is in force."""
        return self.reason is not ConfigurationReason.REFUSED


def verdict(active: ActiveConfiguration) -> ConfigurationVerdict:
    """Return whether every edit is in force."""
    if active.refused:
        told = "; ".join(f"{name}: {why}" for name, why in sorted(active.refused.items()))
        since = ", from an earlier process" if active.from_before else ""
        return ConfigurationVerdict(reason=ConfigurationReason.REFUSED, message=f"{told}; {LAST_GOOD}{since}")
    if active.notes:
        return ConfigurationVerdict(
            reason=ConfigurationReason.ACCEPTED_WITH_NOTES, message="in force; " + "; ".join(active.notes)
        )
    return ConfigurationVerdict(reason=ConfigurationReason.ACCEPTED, message="the whole configuration is in force")


def refusal(name: str, why: str) -> Announce:
    """Return the event for the ConfigMap *name* (NAMESPACE/NAME) that is not in force."""
    namespace, _, own_name = name.rpartition("/")
    return Announce(
        about=Subject(kind="ConfigMap", namespace=namespace, name=own_name, uid=""),
        reason="ConfigurationRefused",
        message=f"rejected, {LAST_GOOD}: {why}"[:_EVENT_MAX],
    )
