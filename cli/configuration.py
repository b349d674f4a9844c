"""The configuration as the cluster's ConfigMaps say it, for commands that read it once."""

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
    """What each text of the configuration says, for `core.configuration.merge`; those of others are believed.

    Args:
        texts: fetches what a ConfigMap (NAMESPACE/NAME) holds by key, nothing of one that is not there.
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
