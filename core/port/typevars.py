"""Type variables for a dialect's own values: its card, request and assignment."""

from typing import TypeVar

CardT = TypeVar("CardT")
RequestT = TypeVar("RequestT")
AssignmentT = TypeVar("AssignmentT")
RequestT_co = TypeVar("RequestT_co", covariant=True)
# For roles that receive such values and return none.
CardT_contra = TypeVar("CardT_contra", contravariant=True)
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
AssignmentT_contra = TypeVar("AssignmentT_contra", contravariant=True)
