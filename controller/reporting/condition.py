"""What the condition of the controller's own pod, and events, say of the configuration: whether it is in force."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.actions import Announce, Subject
from runtime.configuration import LAST_GOOD, ActiveConfiguration

_EVENT_MAX: Final = 900


class ConfigurationReason(StrEnum):
    """What can be said of the configuration; all but REFUSED say that it is in force."""

    ACCEPTED = "Accepted"
    ACCEPTED_WITH_NOTES = "AcceptedWithNotes"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationVerdict:
    """Whether the configuration as it was last edited is in force; in one word and for people."""

    reason: ConfigurationReason
    message: str

    @property
    def accepted(self) -> bool:
        """Whether it is in force."""
        return self.reason is not ConfigurationReason.REFUSED


def verdict(active: ActiveConfiguration) -> ConfigurationVerdict:
    """Whether all that was written is in force."""
    if active.refused:
        told = "; ".join(f"{name}: {why}" for name, why in sorted(active.refused.items()))
        since = ", from before this process began" if active.from_before else ""
        return ConfigurationVerdict(reason=ConfigurationReason.REFUSED, message=f"{told}; {LAST_GOOD}{since}")
    if active.notes:
        return ConfigurationVerdict(
            reason=ConfigurationReason.ACCEPTED_WITH_NOTES, message="in force; " + "; ".join(active.notes)
        )
    return ConfigurationVerdict(reason=ConfigurationReason.ACCEPTED, message="the whole configuration is in force")


def refusal(name: str, why: str) -> Announce:
    """The event that the ConfigMap *name* is not in force, NAMESPACE/NAME."""
    namespace, _, own_name = name.rpartition("/")
    return Announce(
        about=Subject(kind="ConfigMap", namespace=namespace, name=own_name, uid=""),
        reason="ConfigurationRefused",
        message=f"not taken, {LAST_GOOD}: {why}"[:_EVENT_MAX],
    )
