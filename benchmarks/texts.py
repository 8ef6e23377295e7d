"""Real sentences to encode."""

from __future__ import annotations

import random
from itertools import islice

from ensembed.corpora.corpus import TextCorpus
from ensembed.fetch.catalog import require
from ensembed.fetch.fetcher import pull
from ensembed.sts import read_stsb
from ensembed.support.machine import data_dirs

NEWS = ("corpus/leipzig_eng_news_2016_raw.txt.gz", "corpus/news_mix_tok.txt.gz")


def stsb(count: int) -> list[str]:
    """Distinct sentences of STS-B dev, then of train: short ones, of all kinds."""
    pull(["stsb"])
    parts = [read_stsb(require("stsb"), split).parts[0] for split in ("dev", "train")]
    sentences = (text for part in parts for text in (*part.sentences1, *part.sentences2))
    return list(islice(dict.fromkeys(sentences), count))


def news(count: int) -> list[str]:
    """Distinct lines of news, as many as there are of them up to `count`; STS-B where no data folder has any."""
    for name in NEWS:
        found = [folder / name for folder in data_dirs() if (folder / name).exists()]
        if found:
            lines = list(islice(dict.fromkeys(TextCorpus(found[0])), count))
            if len(lines) == count:
                return lines
    return stsb(count)


def inbox(messages: int, repeats: float = 0.4, seed: int = 0) -> list[str]:
    """Messages of which a part repeat earlier ones, as in a support inbox: some often, most once, in mixed order."""
    distinct = news(round(messages * (1 - repeats)))
    generator = random.Random(seed)  # noqa: S311 - no secret
    # A message is repeated the more often the earlier it stands: templates and answers of machines.
    weights = [1 / (rank + 1) for rank in range(len(distinct))]
    every = [*distinct, *generator.choices(distinct, weights, k=messages - len(distinct))]
    generator.shuffle(every)
    return every
