"""What holds of every class of core, compiled or not."""

import importlib
import pkgutil
from abc import ABCMeta

import core


def _classes():
    for module in pkgutil.walk_packages(core.__path__, "core."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and found.__module__ == module.name:
                yield found


def _is_for_types_alone(found):
    """Whether it is a protocol that nobody can ask by isinstance."""
    return getattr(found, "_is_protocol", False) and not getattr(found, "_is_runtime_protocol", False)


def test_whoever_is_asked_by_isinstance_has_a_registry_of_its_own():
    """A class made by mypyc has its base's: what is an instance of one is then taken for an instance of the other."""
    abstract = [found for found in _classes() if isinstance(found, ABCMeta) and not _is_for_types_alone(found)]
    assert len(abstract) > 5
    assert [found for found in abstract if "_abc_impl" not in vars(found)] == []
