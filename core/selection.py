"""Which cards a pod accepts: by type, uuid and index. Lists are parsed once and matched with every card.

Types are matched by whole words, so that ``A10`` never selects an A100 (protocol reference, nvidia S22). The keys of
the annotations belong to the dialects; this module has only the grammar of their values.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from core.errors import InvalidRequestError
from core.names import MAX_LIST_ITEMS
from core.port.refusals import Reason
from core.wire.reading import check_length

_POSITION_DIGITS: Final = 4
_SEPARATORS: Final = str.maketrans("-_\t", "   ")

# The words of a type or a list item, in upper case, in order.
Words = tuple[str, ...]


class TypePattern(NamedTuple):
    """One item of a type list: consecutive words; open_ended = the last one is only a prefix."""

    words: Words
    open_ended: bool

    def matches(self, card_words: Words) -> bool:
        """Return whether the words of this item are consecutive in *card_words*."""
        words, count = self.words, len(self.words)
        for start in range(len(card_words) - count + 1):
            if card_words[start : start + count] == words:
                return True
            if (
                self.open_ended
                and card_words[start : start + count - 1] == words[:-1]
                and card_words[start + count - 1].startswith(words[-1])
            ):
                return True
        return False


class CardSelection(NamedTuple):
    """The cards that a pod accepts; an empty part accepts every card.

    indices are the only accepted positions, avoided_indices the rejected ones. In every pair, rejection wins.
    """

    use_types: frozenset[TypePattern] = frozenset()
    no_use_types: frozenset[TypePattern] = frozenset()
    use_uuids: frozenset[str] = frozenset()
    no_use_uuids: frozenset[str] = frozenset()
    indices: frozenset[int] = frozenset()
    avoided_indices: frozenset[int] = frozenset()

    def accepts(self, card_words: Words, uuid: str, index: int) -> Reason | None:
        """Return None if the card may be used, otherwise the part of the selection that rejects it."""
        if uuid in self.no_use_uuids or (self.use_uuids and uuid not in self.use_uuids):
            return Reason.UUID
        if self.no_use_uuids and not uuid:
            # A card without a name may be one of the rejected ones.
            return Reason.UUID
        if (self.indices and index not in self.indices) or index in self.avoided_indices:
            return Reason.INDEX
        if self.use_types or self.no_use_types:
            return None if self.accepts_type(card_words) else Reason.TYPE
        return None

    def without(self, wish: Reason) -> "CardSelection":
        """Return the selection without *wish*, one of `core.port.refusals.WISHES`."""
        match wish:
            case Reason.TYPE:
                left = self._replace(use_types=frozenset(), no_use_types=frozenset())
            case Reason.UUID:
                left = self._replace(use_uuids=frozenset(), no_use_uuids=frozenset())
            case _:
                left = self._replace(indices=frozenset(), avoided_indices=frozenset())
        return ANY_CARD if left == ANY_CARD else left

    def accepts_type(self, card_words: Words) -> bool:
        """Return whether cards of this type may be used."""
        return _accepts_type(self.use_types, self.no_use_types, card_words)


ANY_CARD: Final = CardSelection()


# A cluster has a few types and lists, but they are matched for every card of every decision.
@lru_cache(maxsize=4096)
def _accepts_type(use: frozenset[TypePattern], no_use: frozenset[TypePattern], card_words: Words) -> bool:
    if any(item.matches(card_words) for item in no_use):
        return False
    return not use or any(item.matches(card_words) for item in use)


def type_words(text: str) -> Words:
    """Return the words of a card's type, split at ``-``, ``_`` and blanks, in upper case."""
    return tuple(text.upper().translate(_SEPARATORS).split())


def decode_types(text: str, field: str) -> frozenset[TypePattern]:
    """Read a list of types; blank items are dropped, so a blank list requests nothing.

    Source: protocol reference, nvidia 3.7 as corrected by S22.

    Raises:
        InvalidRequestError: the text is longer than an annotation may be.
    """
    return _types(text) if len(text) <= _MAX_SHARED_CHARS else _types_of(decode_items(text, field))


# A cluster has a few such lists, repeated on many pods; longer ones must not fill the cache.
_MAX_SHARED_CHARS: Final = 256


@lru_cache(maxsize=1024)
def _types(text: str) -> frozenset[TypePattern]:
    return _types_of(decode_items(text, ""))


def _types_of(items: frozenset[str]) -> frozenset[TypePattern]:
    patterns: set[TypePattern] = set()
    for item in items:
        open_ended = item.endswith("*")
        words = type_words(item[:-1] if open_ended else item)
        if open_ended and (not words or item[-2] in "-_ \t"):
            words = (*words, "")
        if words:
            patterns.add(TypePattern(words, open_ended))
    return frozenset(patterns)


def decode_items(text: str, field: str) -> frozenset[str]:
    """Read a comma-separated list; items are trimmed, empty ones dropped.

    Raises:
        InvalidRequestError: the text is longer than an annotation may be, or has too many items.
    """
    check_length(text, field)
    if text.count(",") >= MAX_LIST_ITEMS:
        raise InvalidRequestError(field, text, f"write no more than {MAX_LIST_ITEMS} items")
    return frozenset(filter(None, map(str.strip, text.split(","))))


def decode_indices(text: str, field: str) -> frozenset[int]:
    """Read a list of card positions such as ``0,2``; a blank list requests nothing.

    Raises:
        InvalidRequestError: an item is not a whole number from 0 to 9999, or is repeated.
    """
    items = decode_items(text, field)
    if not all(item.isascii() and item.isdigit() and len(item) <= _POSITION_DIGITS for item in items):
        raise InvalidRequestError(field, text, "write positions of cards such as '0,2'")
    indices = frozenset(map(int, items))
    if len(indices) != sum(1 for item in text.split(",") if item.strip()):
        raise InvalidRequestError(field, text, "name each card once")
    return indices


def avoided(text: str, field: str) -> tuple[frozenset[str], frozenset[int]]:
    """Read a list of cards to avoid: their uuids, and the positions among its items.

    Raises:
        InvalidRequestError: the text is longer than an annotation may be, or a number is not a position.
    """
    items = decode_items(text, field)
    numbers = frozenset(item for item in items if item.isdigit())
    if not all(item.isascii() and len(item) <= _POSITION_DIGITS for item in numbers):
        raise InvalidRequestError(field, text, "write positions of cards from 0 to 9999 such as '0,2', or their ids")
    return items - numbers, frozenset(map(int, numbers))
