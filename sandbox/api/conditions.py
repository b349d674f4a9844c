"""The match conditions of webhooks: expressions in CEL that keep reviews away which the webhook need not see.

Two things are not as on the real server. The fields of ``request`` have no types here: an expression that misuses one
is registered, and fails when it is evaluated. And of Kubernetes' own functions there are only those that ask the
authorizer what a service account may do with a resource: an expression that calls another is refused when registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

MAX_CONDITIONS: Final = 64
_VARIABLES: Final = ("object", "oldObject", "request")
# Whether the service account of a namespace and name may do what is checked: a verb, on a resource of a group.
Allows = Callable[[Mapping[str, str]], bool]
_allows: ContextVar[Allows] = ContextVar("allows")


def nobody(asked: Mapping[str, str]) -> bool:
    """Nobody may do anything."""
    del asked
    return False


class ExpressionError(ValueError):
    """The text is no expression that says yes or no."""


class ConditionError(Exception):
    """A condition could not be evaluated, and no other one is false; `failurePolicy` decides what follows."""


def met(conditions: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], allows: Allows = nobody) -> bool:
    """Whether all conditions are true; one that is false decides, whatever becomes of the others.

    *allows* answers for the authorizer.

    Raises:
        ConditionError: none is false, and some could not be evaluated.
    """
    if not conditions:
        return True
    _allows.set(allows)
    activation = _environment().Activation({"authorizer": {}, **{name: variables[name] for name in _VARIABLES}})
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
    text, asked = cel.Type.STRING, cel.Type.MAP
    account = cel.Overload("account", asked, [asked, text, text], is_member=True, impl=_account)
    told = [
        cel.FunctionDecl(name, [cel.Overload(f"{name}_of", asked, [asked, text], is_member=True, impl=_telling(name))])
        for name in ("group", "resource", "subresource", "check")
    ]
    allowed = cel.Overload("allowed", cel.Type.BOOL, [asked], is_member=True, impl=_allowed)
    return cel.NewEnv(
        variables={"authorizer": asked, **dict.fromkeys(_VARIABLES, cel.Type.DYN)},
        functions=[cel.FunctionDecl("serviceAccount", [account]), *told, cel.FunctionDecl("allowed", [allowed])],
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )


def _account(_: Any, namespace: str, name: str) -> dict[str, str]:
    return {"namespace": namespace, "name": name}


def _telling(what: str) -> Callable[[Any, str], dict[str, str]]:
    return lambda asked, word: {**dict(asked), what: word}


def _allowed(asked: Any) -> bool:
    return _allows.get()(dict(asked))
