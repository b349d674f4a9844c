"""The match conditions of webhooks: CEL expressions that exclude irrelevant reviews.

It differs from the real server in two ways. The fields of ``request`` have no types here, so an expression that misuses
one is registered, and fails at its evaluation. Of Kubernetes' own functions, only those exist that ask the authorizer
about a service account and a resource; an expression with another one is rejected at its registration.
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
# Returns whether the service account with namespace and name may use a verb on a resource of a group.
Allows = Callable[[Mapping[str, str]], bool]
_allows: ContextVar[Allows] = ContextVar("allows")


def nobody(asked: Mapping[str, str]) -> bool:
    """Deny everything."""
    del asked
    return False


class ExpressionError(ValueError):
    """The text is not a boolean expression."""


class ConditionError(Exception):
    """A condition could not be evaluated, and no other one is false; `failurePolicy` decides what follows."""


def met(conditions: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], allows: Allows = nobody) -> bool:
    """Return whether all conditions are true; a false one decides, even if others fail.

    *allows* replaces the authorizer.

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
    """Reject an invalid condition.

    Raises:
        ExpressionError: *text* does not compile, or its type is not bool.
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
