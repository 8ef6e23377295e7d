"""What a body would be parsed into, counted on its bytes: what is too much is refused before the parser makes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ensembed.serve.replies import ApiError
from ensembed.serve.shapes import TOKENS

# Keys, and values of fields other than the texts: far more than any client sends beside them.
OTHERS = 1000

_NUMBERS = rb'"%s"\s*:[\s\[]*-?[0-9]'  # behind a field's name
_TWO_FOR_ONE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]")  # escapes of one character
_CONTINUED = bytes(range(0x80, 0xC0))  # bytes of a character after its first


def check_outline(body: bytes, param: str, items: int, characters: int) -> None:
    """Refuse a body of too many values or with too long a text, in time and memory proportional to its bytes.

    Strings are walked as units, so whatever a text holds is not counted. Values other than the texts have room for
    `OTHERS` more; how many texts there are exactly is for those to check who have parsed them.

    Args:
        body: any bytes. Where they are no JSON, the parser stops where this would begin to count wrongly.
        param: the field with the texts.
        items: the most texts.
        characters: the most characters of a text.

    Raises:
        ApiError: it is too much.
    """
    most = items + OTHERS
    if len(body) <= min(most, characters):  # a value or a character takes a byte at least
        return
    # An escaped quote does not end a string. Left to right: of three backslashes before a quote, two are one sign.
    plain = body.replace(b"\\\\", b".").replace(b'\\"', b".")
    if plain.count(b'"') > 2 * most:
        raise _crowded(param, items)
    pieces = plain.split(b'"')  # outside, string, outside, string, …
    frame = b"".join(pieces[::2])
    # Every value but the first of its list or object comes after a comma.
    if sum(map(frame.count, (b",", b"[", b"{"))) > most:
        raise _numbers(param) if re.search(_NUMBERS % param.encode(), plain) else _crowded(param, items)
    for place, text in enumerate(_texts(pieces, param.encode())):
        if len(text) > characters and count_characters(text) > characters:
            raise too_long(param, place, count_characters(text), characters)


def count_characters(string: bytes) -> int:
    r"""How many a JSON string has, in which `\\` and `\"` have been replaced by one sign each."""
    signs = len(string.translate(None, _CONTINUED))
    return signs - string.count(b"\\") - 4 * string.count(b"\\u") - len(_TWO_FOR_ONE.findall(string))


def too_long(param: str, place: int, length: int, most: int) -> ApiError:
    """A text has too many characters."""
    message = f"{param}[{place}] has {length} characters, at most {most} are taken: shorten it"
    return ApiError(400, message, param=param, code="text_too_long")


def _crowded(param: str, items: int) -> ApiError:
    message = f"the body holds too many values: {param} takes at most {items} texts; send them in several requests"
    return ApiError(400, message, param=param, code="too_many_texts")


def _numbers(param: str) -> ApiError:
    if param == "input":
        return ApiError(400, TOKENS, param=param, code="token_ids")
    return ApiError(400, f"{param} holds numbers: send texts", param=param, code="string_type")


def _texts(pieces: list[bytes], param: bytes) -> Iterator[bytes]:
    """The strings of the field; none where it is written in an odd way, which the parser will see through."""
    depth = 0
    for at in range(0, len(pieces) - 3, 2):
        depth += sum(map(pieces[at].count, (b"[", b"{"))) - sum(map(pieces[at].count, (b"]", b"}")))
        begin = b"".join(pieces[at + 2].split())
        if depth == 1 and pieces[at + 1] == param and begin in (b":", b":["):
            yield pieces[at + 3]
            follow = at + 4
            while begin == b":[" and follow + 1 < len(pieces) and pieces[follow].strip() == b",":
                yield pieces[follow + 1]
                follow += 2
            return
