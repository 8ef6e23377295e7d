"""Sentences to measure with where nobody has any at hand."""

from __future__ import annotations

import itertools

from ensembed.errors import InputError

# Of the lengths that messages have: the parts are from 2 to 14 words long.
_WHO = (
    "A customer from Lisbon",
    "The new colleague in accounting",
    "My neighbour",
    "The owner of a small bakery near the station",
    "A teacher who works with two large classes",
    "Our supplier",
    "The driver of the morning bus",
    "A student in her first year",
    "The night nurse",
    "Somebody from the football club",
    "The man who repairs our bicycles on Saturdays",
    "A reader of the evening paper",
    "The engineer on duty",
    "An old friend of my father's",
    "The editor",
    "A visitor with a valid ticket for the second day",
)
_DID = (
    "asks how to change the address on an invoice",
    "cannot log in since the update",
    "wants the money back for a broken lamp",
    "says that the parcel never arrived, although the page calls it delivered",
    "found a cheaper offer",
    "would like to cancel the order before it is sent",
    "reports that the heating makes a noise at night and stays cold in the morning",
    "forgot a blue umbrella",
    "thanks everybody for the quick answer",
    "is looking for the manual of the coffee machine",
    "paid twice",
    "complains about the noise of the building site across the street",
    "needs a receipt with the tax number on it by the end of the month",
    "has lost the key",
    "asks whether the museum is open on Monday",
    "wants to speak to a person, not to a machine, about the terms of the contract",
)
_MORE = (
    "",
    "for the third time this week",
    "and hopes for an answer today",
    "because the page on the phone shows nothing but an empty box where the button used to be",
    "in the branch at the market square",
    "as it was agreed in a call with the office last Tuesday",
    "and has attached two photographs",
    "but does not remember the number of the order or the name of the person who took it",
)
MOST = len(_WHO) * len(_DID) * len(_MORE)


def default_sentences(count: int = 2000) -> list[str]:
    """Distinct made-up sentences of 4 to 35 words, such as people write to a help desk; always the same.

    Example:
        >>> default_sentences(2)
        ['A customer from Lisbon asks how to change the address on an invoice.', 'My neighbour cannot log in since \
the update for the third time this week.']
    """
    if not 1 <= count <= MOST:
        raise InputError(f"there are 1 to {MOST} made-up sentences, not {count}; give a file of your own for more")
    every = list(itertools.product(_WHO, _DID, _MORE))
    # A step that shares no factor with their number visits each once, and mixes the lengths.
    step = len(_DID) * len(_MORE) * 2 + len(_MORE) + 1
    chosen = (every[i * step % MOST] for i in range(count))
    return [" ".join(part for part in parts if part) + "." for parts in chosen]
