"""The configuration's state in the condition of the controller's own pod, and in events."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NoReturn

import structlog

from controller.actions import Announce, Subject
from core.configuration import LAST_GOOD, Source
from kube.calls import Calls, namespace_path
from kube.condition import Verdict, keep_written
from runtime.configuration import ActiveConfiguration
from runtime.flags import ObjectName

_EVENT_MAX: Final = 900
_log: Final = structlog.get_logger()


class ConfigurationReason(StrEnum):
    """The reason of the condition; the configuration is in force for all reasons except REFUSED."""

    ACCEPTED = "Accepted"
    ACCEPTED_WITH_NOTES = "AcceptedWithNotes"
    REFUSED = "Refused"

    @property
    def accepted(self) -> bool:
        """Whether the last edit of the configuration is in force."""
        return self is not ConfigurationReason.REFUSED


def verdict(active: ActiveConfiguration) -> Verdict:
    """Return whether every edit is in force."""
    reason, message = ConfigurationReason.ACCEPTED, "the whole configuration is in force"
    if active.refused:
        told = "; ".join(f"{name}: {why}" for name, why in sorted(active.refused.items()))
        since = ", from an earlier process" if active.from_before else ""
        reason, message = ConfigurationReason.REFUSED, f"{told}; {LAST_GOOD}{since}"
    elif active.notes:
        reason, message = ConfigurationReason.ACCEPTED_WITH_NOTES, "in force; " + "; ".join(active.notes)
    return Verdict(accepted=reason.accepted, reason=reason, message=message)


def refusal(name: str, why: str) -> Announce:
    """Return the event for the ConfigMap *name* (NAMESPACE/NAME) that is not in force."""
    namespace, _, own_name = name.rpartition("/")
    return Announce(
        about=Subject(kind="ConfigMap", namespace=namespace, name=own_name, uid=""),
        reason="ConfigurationRefused",
        message=f"rejected, {LAST_GOOD}: {why}"[:_EVENT_MAX],
    )


async def keep_last_good(calls: Calls, where: ObjectName, good: Mapping[Source, str]) -> NoReturn:
    """Keep the texts in force, *good*, in a ConfigMap of cardshare, for a start whose current texts are refused.

    The ConfigMap is mounted where both processes read it at such a start. Only the leader writes it.
    """
    path = f"{namespace_path(where.namespace)}/configmaps/{where.name}"

    async def write(texts: Mapping[Source, str]) -> None:
        await calls.patch(path, {"data": {source.value: texts.get(source) for source in Source}})
        _log.info("configuration in force saved", config_map=str(where))

    def complain(error: str, is_news: bool) -> None:
        if is_news:
            _log.warning("the configuration in force cannot be saved", config_map=str(where), error=error)

    await keep_written(lambda: dict(good), write, complain)
