"""Type variables for a dialect's own values: its card, request, assignment, and the scale of its figures."""

from typing import TypeVar

CardT = TypeVar("CardT")
RequestT = TypeVar("RequestT")
AssignmentT = TypeVar("AssignmentT")
ScaleT = TypeVar("ScaleT")
RequestT_co = TypeVar("RequestT_co", covariant=True)
# For roles that receive such values and return none.
CardT_contra = TypeVar("CardT_contra", contravariant=True)
RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
AssignmentT_contra = TypeVar("AssignmentT_contra", contravariant=True)
