"""Words that tell a cluster from the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

# Letters and what may stand inside a word; a single letter says little.
_WORD = re.compile(r"[^\W\d_][\w'’-]*\w")
# Of the prior: this part of a word's count in all clusters is added to its count in each.
_PRIOR = 0.01
# Words that were seen this often in a cluster, at the least: what occurs once belongs to a sentence, not to a cluster.
_SEEN = 2


def distinguishing_words(sentences: Iterable[tuple[int, str]], clusters: int, most: int = 8) -> list[list[str]]:
    """The words that sentences of a cluster use more than those of the others, at most so many for each.

    The log of a word's odds in the cluster over its odds elsewhere, with a prior from all of the text, over its
    standard error (Monroe, Colaresi and Quinn 2008): frequent words without meaning cancel, and rare ones do not win by
    accident. Each word counts once a sentence.

    Args:
        sentences: (cluster, text); clusters below 0 belong to none, and count for the others as text of elsewhere.
        clusters: how many there are.
        most: words of a cluster.

    Example:
        >>> pets, shares = "the dog barks", "the stocks fall"
        >>> distinguishing_words([(0, pets), (0, pets), (1, shares), (1, shares)], 2, most=2)
        [['barks', 'dog'], ['fall', 'stocks']]
    """
    counts: Sequence[Counter[str]] = [Counter() for _ in range(clusters)]
    rest: Counter[str] = Counter()
    for cluster, text in sentences:
        (counts[cluster] if cluster >= 0 else rest).update(set(_WORD.findall(text.lower())))
    total = rest.copy()
    for one in counts:
        total.update(one)
    return [_words(one, total, most) for one in counts]


def _words(own: Counter[str], total: Counter[str], most: int) -> list[str]:
    words = sorted(word for word, count in own.items() if count >= _SEEN)
    if not words or most < 1:
        return []
    here = np.array([own[word] for word in words], float)
    everywhere = np.array([total[word] for word in words], float)
    prior, elsewhere = _PRIOR * everywhere, everywhere - here
    all_here, all_text = float(sum(own.values())), float(sum(total.values()))
    odds = np.log((here + prior) / (all_here + _PRIOR * all_text - here - prior))
    others = np.log((elsewhere + prior) / (all_text - all_here + _PRIOR * all_text - elsewhere - prior))
    score = (odds - others) / np.sqrt(1 / (here + prior) + 1 / (elsewhere + prior))
    best = np.argsort(-score, kind="stable")[:most]
    return [words[i] for i in best if score[i] > 0]
