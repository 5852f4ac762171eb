"""A small language pair: words with their translations, translations of which some are wrong."""

import numpy as np
import polars as pl

WORDS = {f"sona{i}x": f"word{i}y" for i in range(40)} | {"maja": "house", "koer": "dog", "kaks": "2"}
WORDS = {source[::-1]: target[::-1] for source, target in WORDS.items()}  # units are beginnings of words


def segments(n, seed=0, lp="et-en"):
    rng, rows = np.random.default_rng(seed), []
    names = list(WORDS)
    for _ in range(n):
        source = [names[i] for i in rng.integers(len(names), size=rng.integers(3, 9))]
        right = [WORDS[word] for word in source]
        share = rng.choice([0.0, 0.2, 0.5])
        bad = rng.random(len(right)) < share
        made = [
            list(WORDS.values())[rng.integers(len(names))] if wrong else word
            for word, wrong in zip(right, bad, strict=True)
        ]
        tags = ["OK" if word == good else "BAD" for word, good in zip(made, right, strict=True)]
        rows.append(
            {
                "lp": lp,
                "src": " ".join(source),
                "mt": " ".join(made),
                "pe": " ".join(right),
                "mt_tok": " ".join(made),
                "mt_tags": tags,
                "src_tok": " ".join(source),
                "src_tags": tags,
                "human": 1.0 - 2.0 * tags.count("BAD") / len(tags) + 0.1 * rng.normal(),
            }
        )
    return pl.DataFrame(rows)
