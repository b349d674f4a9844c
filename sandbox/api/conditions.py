"""The match conditions of webhooks: expressions in CEL that keep reviews away which the webhook need not see.

Two things are not as on the real server. The fields of ``request`` have no types here: an expression that misuses one
is registered, and fails when it is evaluated. And of Kubernetes' own functions (quantities, addresses, the authorizer)
there are none: an expression that calls one is refused at its registration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

MAX_CONDITIONS: Final = 64
_VARIABLES: Final = ("object", "oldObject", "request")


class ExpressionError(ValueError):
    """The text is no expression that says yes or no."""


class ConditionError(Exception):
    """A condition could not be evaluated, and no other one is false; `failurePolicy` decides what follows."""


def met(conditions: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> bool:
    """Whether all conditions are true; one that is false decides, whatever becomes of the others.

    Raises:
        ConditionError: none is false, and some could not be evaluated.
    """
    if not conditions:
        return True
    activation = _environment().Activation({name: variables[name] for name in _VARIABLES})
    failures = []
    for condition in conditions:
        found = _compiled(condition["expression"]).eval(activation)
        if found.type() != cel.Type.BOOL:
            failures.append(f"condition {condition['name']}: {found.value()}")
        elif not found.value():
            return False
    if failures:
        raise ConditionError(", ".join(failures))
    return True


def check_expression(text: str) -> None:
    """Refuse what is no condition.

    Raises:
        ExpressionError: *text* cannot be compiled, or is of another type than bool.
    """
    _compiled(text)


@lru_cache(maxsize=256)
def _compiled(text: str) -> Any:
    try:
        found = _environment().compile(text)
    except RuntimeError as e:
        raise ExpressionError(f"compilation failed: {e}") from e
    if found.return_type() != cel.Type.BOOL:
        raise ExpressionError("must evaluate to bool")
    return found


@lru_cache(maxsize=1)
def _environment() -> Any:
    return cel.NewEnv(
        variables=dict.fromkeys(_VARIABLES, cel.Type.DYN),
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )
