"""Reads the configuration in the cluster's ConfigMaps once."""

from collections.abc import Awaitable, Callable, Mapping

from core.catalog import Catalog
from core.configuration import (
    OWN_MAP,
    SCHEDULER_KEY,
    SCHEDULER_MAP,
    SETTINGS_KEY,
    Decoded,
    Source,
    Text,
    decode,
    device_maps,
    merge,
)


async def fetch_parts(
    texts: Callable[[str], Awaitable[Mapping[str, str]]], catalog: Catalog, own_map: str = OWN_MAP
) -> Mapping[Source, Decoded]:
    """Return the decoded texts of the configuration for `core.configuration.merge`; third-party texts are trusted.

    Args:
        texts: fetches the content of a ConfigMap (NAMESPACE/NAME) by key; empty if it does not exist.
        catalog: the dialects.
        own_map: the ConfigMap of cardshare's own settings.
    """

    def decoded(source: Source, config_map: str, content: str) -> Decoded:
        return decode(Text(source=source, config_map=config_map, content=content), catalog)

    own = await texts(own_map)
    found = {
        Source.OWN: decoded(Source.OWN, OWN_MAP, own.get(SETTINGS_KEY, "")),
        Source.SCHEDULER_FILE: decoded(Source.SCHEDULER_FILE, OWN_MAP, own.get(SCHEDULER_KEY, "")),
    }
    found[Source.SCHEDULER_MAP] = decoded(
        Source.SCHEDULER_MAP, SCHEDULER_MAP, (await texts(SCHEDULER_MAP)).get(Source.SCHEDULER_MAP.key, "")
    )
    for source, name in device_maps(merge(found, catalog).settings).items():
        found[source] = decoded(source, name, (await texts(name)).get(source.key, "") if name else "")
    return found
