import functools

import pytest
import torch

from sonosco_like.errors import UsageError
from sonosco_like.metrics import (
    DecodedBatch,
    Metric,
    Sums,
    character_error_rate,
    description_of,
    measure,
    metric,
    needs_of,
    sentence_error_rate,
    teacher_forced_character_error_rate,
    teacher_forced_sentence_error_rate,
    teacher_forced_texts,
    teacher_forced_word_error_rate,
    token_accuracy,
    word_error_rate,
)
from sonosco_like.records import END, Batch, Output
from sonosco_like.serialization import dumps, loads, serializable

LETTERS = ["<blank>", "<s>", "</s>", "<unk>", "a", "b", " "]


def text_of(labels):
    return "".join(LETTERS[label] for label in labels)


def batch_of(*texts):
    labels = [[LETTERS.index(letter) for letter in text] for text in texts]
    longest = max(map(len, labels))
    return Batch(
        features_BTF=torch.zeros(len(texts), 1, 1),
        feature_lengths_B=torch.ones(len(texts), dtype=torch.int64),
        labels_BU=torch.tensor([row + [0] * (longest - len(row)) for row in labels], dtype=torch.int64),
        label_lengths_B=torch.tensor([len(row) for row in labels]),
        texts=list(texts),
    )


def output_saying(*rows):
    """An output whose attention logits rank these labels first."""
    logits_BUV = torch.nn.functional.one_hot(torch.tensor(rows), len(LETTERS)).float()
    nothing = torch.zeros(len(rows), 1, 1)
    return Output(nothing, torch.ones(len(rows), dtype=torch.int64), attention_logits_BUV=logits_BUV)


def judged(references, hypotheses):
    return DecodedBatch(batch_of(*references), output_saying(*[[END]] * len(references)), hypothesis_texts=hypotheses)


def test_word_error_rate_is_of_the_corpus_not_a_mean_of_rates():
    sums = word_error_rate(judged(["a", "a b a b"], ["b", "a b a b"]))
    assert sums.value == 1 / 5
    assert sums.parts == {"substitutions": 1, "deletions": 0, "insertions": 0}


def test_character_and_sentence_error_rates():
    batch = judged(["ab", "a b"], ["ab", "ab"])
    assert character_error_rate(batch).value == 1 / 5
    assert sentence_error_rate(batch).value == 1 / 2


def test_silence_heard_as_silence_is_right_and_invented_words_are_counted():
    assert word_error_rate(judged([""], [""])).value == 0.0
    assert word_error_rate(judged(["", ""], ["a", "b a"])).value == 3.0
    assert sentence_error_rate(judged(["", ""], ["a", ""])).value == 0.5


def test_all_blank_output_is_all_deletions():
    sums = word_error_rate(judged(["a b", "b"], ["", ""]))
    assert sums.value == 1.0
    assert sums.parts["deletions"] == 3


def test_teacher_forced_texts_end_at_the_end_and_within_the_labels():
    batch = batch_of("ab", "a")
    output = output_saying([4, 5, END], [5, 4, 5])  # the second says no END; its last position is padding
    assert teacher_forced_texts(output, batch, text_of) == ["ab", "ba"]


def test_teacher_forced_rates_have_their_own_names_and_never_see_hypotheses():
    batch = batch_of("a b", "b")
    seen = DecodedBatch(batch, output_saying([END] * 4, [END] * 4), teacher_forced_texts=["a b", "a"])
    assert teacher_forced_word_error_rate(seen).value == 1 / 3
    assert teacher_forced_character_error_rate(seen).value == 1 / 4
    assert teacher_forced_sentence_error_rate(seen).value == 1 / 2
    with pytest.raises(UsageError, match=r"needs=\('hypotheses',\)"):
        word_error_rate(seen)


def test_token_accuracy_counts_labels_and_end_but_no_padding():
    batch = batch_of("ab", "a")
    right = output_saying([4, 5, END], [4, END, 0])
    assert token_accuracy(DecodedBatch(batch, right)).value == 1.0
    wrong_end = output_saying([4, 5, 4], [4, END, END])
    sums = token_accuracy(DecodedBatch(batch, wrong_end))
    assert sums.value == 4 / 5
    assert isinstance(sums.total, torch.Tensor)


def test_token_accuracy_of_a_ctc_model_is_refused_with_a_remedy():
    output = Output(torch.zeros(1, 1, 1), torch.ones(1, dtype=torch.int64))
    with pytest.raises(UsageError, match="attention decoder"):
        token_accuracy(DecodedBatch(batch_of("a"), output))


def test_direction_and_needs_are_declared():
    assert description_of(word_error_rate).lower_is_better
    assert not description_of(token_accuracy).lower_is_better
    assert needs_of([token_accuracy]) == frozenset()
    assert needs_of([token_accuracy, word_error_rate]) == {"hypotheses"}
    assert needs_of([teacher_forced_word_error_rate, word_error_rate]) == {"hypotheses", "teacher_forced"}


@metric(lower_is_better=False, over="utterances")
def share_longer_than(judged: DecodedBatch, words: int = 3) -> Sums:
    longer = sum(len(text.split()) > words for text in judged.references)
    return Sums(longer, len(judged.references))


@serializable
class Evaluation:
    metrics: list[Metric]


def test_a_metric_with_arguments_keeps_its_description():
    assert description_of(functools.partial(share_longer_than, words=1)).name == "share_longer_than"
    assert share_longer_than(judged(["a b", "a"], ["", ""]), words=1).value == 0.5


def test_metrics_are_named_in_yaml():
    made = loads("metrics: [word_error_rate, character_error_rate, token_accuracy]", Evaluation)
    assert made.metrics == [word_error_rate, character_error_rate, token_accuracy]
    assert loads(dumps(made), Evaluation).metrics == made.metrics


def test_all_metrics_of_a_batch_by_name():
    sums = measure([word_error_rate, share_longer_than], judged(["a b", "a"], ["a b", "b"]))
    assert {name: each.value for name, each in sums.items()} == {"word_error_rate": 1 / 3, "share_longer_than": 0.0}


@pytest.mark.parametrize(
    ("sums", "said"),
    [
        (Sums([1, 2], 3), "`total` is a list"),
        (Sums(torch.ones(2), 3), r"`total` is a tensor of \(2,\)"),
        (Sums(1.0, None), "`weight` is a NoneType"),
        (Sums(1, 2, {"errors": torch.ones(3)}), r"`errors` is a tensor of \(3,\)"),
        (Sums(1, 2, None), "`parts` is a NoneType"),
    ],
)
def test_sums_that_are_no_numbers_are_refused_by_the_name_of_their_metric(sums, said):
    @metric(lower_is_better=True, over="examples")
    def odd(judged):
        return sums

    with pytest.raises(UsageError, match=f"The metric `odd` returned Sums whose {said}"):
        measure([odd], judged(["a"], ["a"]))


def test_a_function_without_direction_is_no_metric():
    with pytest.raises(UsageError, match="lower value"):
        description_of(text_of)
