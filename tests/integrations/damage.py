"""Every way in which a key of a JSON file can be wrong."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, TypeAlias

Keys: TypeAlias = tuple[str | int, ...]

_MISSING = object()
_WRONG: tuple[Any, ...] = (_MISSING, None, True, 0, -1, 1.5, "", "other", "\0", [], ["kind"], {}, {"a": 1}, 10**30)


def damages(whole: Any) -> Iterator[tuple[Keys, Any]]:  # noqa: ANN401 - whatever JSON holds
    """The key that is damaged, and the data with that damage."""
    for keys in _keys(whole):
        for wrong in _WRONG:
            yield keys, changed(whole, keys, wrong)


def changed(whole: Any, keys: Keys, value: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    """A copy with another value there."""
    data = place = copy.deepcopy(whole)
    for name in keys[:-1]:
        place = place[name]
    if value is _MISSING:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return data


def _keys(data: Any, above: Keys = ()) -> Iterator[Keys]:  # noqa: ANN401 - whatever JSON holds
    for name, value in data.items() if isinstance(data, dict) else enumerate(data):
        if value is not None:  # or it need not be there
            yield (*above, name)
        if isinstance(value, (dict, list)):
            yield from _keys(value, (*above, name))
