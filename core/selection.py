"""Which cards a pod accepts: by type, by uuid, by index. Parsed once, asked for every card.

Types are matched by whole words, so that ``A10`` never takes an A100 (protocol reference, nvidia S22). The keys of
the annotations belong to the dialects; only the grammar of their values stands here.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from core.errors import InvalidRequestError
from core.names import MAX_LIST_ITEMS
from core.port.refusals import Reason
from core.wire.reading import check_length

_POSITION_DIGITS: Final = 4
_SEPARATORS: Final = str.maketrans("-_\t", "   ")

# The words of a type or of a list item, in upper case, in order.
Words = tuple[str, ...]


class TypePattern(NamedTuple):
    """One item of a type list: words that must stand in a row; open_ended = the last one is only a beginning."""

    words: Words
    open_ended: bool

    def matches(self, card_words: Words) -> bool:
        """Whether the words of this item stand in a row in *card_words*."""
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
    """What a pod says of the cards it accepts; an empty part accepts every card.

    indices are the only positions wanted, avoided_indices those to leave alone. In every pair the refusal wins.
    """

    use_types: frozenset[TypePattern] = frozenset()
    no_use_types: frozenset[TypePattern] = frozenset()
    use_uuids: frozenset[str] = frozenset()
    no_use_uuids: frozenset[str] = frozenset()
    indices: frozenset[int] = frozenset()
    avoided_indices: frozenset[int] = frozenset()

    def accepts(self, card_words: Words, uuid: str, index: int) -> Reason | None:
        """None if the card may be used, otherwise which part of the selection refuses it."""
        if uuid in self.no_use_uuids or (self.use_uuids and uuid not in self.use_uuids):
            return Reason.UUID
        if self.no_use_uuids and not uuid:
            # A card without a name may be one of those refused.
            return Reason.UUID
        if (self.indices and index not in self.indices) or index in self.avoided_indices:
            return Reason.INDEX
        if self.use_types or self.no_use_types:
            return None if self.accepts_type(card_words) else Reason.TYPE
        return None

    def without(self, wish: Reason) -> "CardSelection":
        """The same less what *wish*, one of `core.port.refusals.WISHES`, stands for."""
        match wish:
            case Reason.TYPE:
                left = self._replace(use_types=frozenset(), no_use_types=frozenset())
            case Reason.UUID:
                left = self._replace(use_uuids=frozenset(), no_use_uuids=frozenset())
            case _:
                left = self._replace(indices=frozenset(), avoided_indices=frozenset())
        return ANY_CARD if left == ANY_CARD else left

    def accepts_type(self, card_words: Words) -> bool:
        """Whether cards of this type may be used at all."""
        return _accepts_type(self.use_types, self.no_use_types, card_words)


ANY_CARD: Final = CardSelection()


# A cluster has a handful of types and lists, asked for at every card of every decision.
@lru_cache(maxsize=4096)
def _accepts_type(use: frozenset[TypePattern], no_use: frozenset[TypePattern], card_words: Words) -> bool:
    if any(item.matches(card_words) for item in no_use):
        return False
    return not use or any(item.matches(card_words) for item in use)


def type_words(text: str) -> Words:
    """The words of a card's type, split at ``-``, ``_`` and blanks, in upper case."""
    return tuple(text.upper().translate(_SEPARATORS).split())


def decode_types(text: str, field: str) -> frozenset[TypePattern]:
    """Read a list of types; blank items are dropped, so that a blank list asks for nothing.

    Source: protocol reference, nvidia 3.7 as corrected by S22.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be.
    """
    return _types(text) if len(text) <= _MAX_SHARED_CHARS else _types_of(decode_items(text, field))


# A cluster has a handful of such lists, written on every pod that has one; longer ones must not fill the memo.
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
    """Read a comma list; items are trimmed, empty ones dropped.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be, or of too many items.
    """
    check_length(text, field)
    if text.count(",") >= MAX_LIST_ITEMS:
        raise InvalidRequestError(field, text, f"write no more than {MAX_LIST_ITEMS} items")
    return frozenset(filter(None, map(str.strip, text.split(","))))


def decode_indices(text: str, field: str) -> frozenset[int]:
    """Read a list of card positions such as ``0,2``; a blank list asks for nothing.

    Raises:
        InvalidRequestError: an item is no whole number from 0 to 9999, or stands there twice.
    """
    items = decode_items(text, field)
    if not all(item.isascii() and item.isdigit() and len(item) <= _POSITION_DIGITS for item in items):
        raise InvalidRequestError(field, text, "write positions of cards such as '0,2'")
    indices = frozenset(map(int, items))
    if len(indices) != sum(1 for item in text.split(",") if item.strip()):
        raise InvalidRequestError(field, text, "name each card once")
    return indices


def avoided(text: str, field: str) -> tuple[frozenset[str], frozenset[int]]:
    """Read a list of cards to leave alone: their uuids, and the positions among its items.

    Raises:
        InvalidRequestError: longer than an annotation of ours may be, or an item is a number and no position.
    """
    items = decode_items(text, field)
    numbers = frozenset(item for item in items if item.isdigit())
    if not all(item.isascii() and len(item) <= _POSITION_DIGITS for item in numbers):
        raise InvalidRequestError(field, text, "write positions of cards from 0 to 9999 such as '0,2', or their ids")
    return items - numbers, frozenset(map(int, numbers))
