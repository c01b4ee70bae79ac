"""A small language model of words."""

from __future__ import annotations

import pytest

from sonosco_like.decoding import NGramLanguageModel

BIGRAMS = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-2.0\t<unk>
0\t<s>\t-0.3
-0.5\t</s>
-0.7\ta\t-0.4
-0.8\tab\t-0.1

\\2-grams:
-0.2\ta ab
-1.5\tab a
-0.3\tab </s>

\\end\\
"""


@pytest.fixture(scope="session")
def language_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("lm") / "bigram.arpa"
    path.write_text(BIGRAMS)
    return NGramLanguageModel(path=path, reader="arpa")
