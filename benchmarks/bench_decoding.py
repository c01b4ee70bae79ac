"""CTC beam search beside bare flashlight-text, for the same result; attention beams beside greedy.

All on one thread, in time of the processor, which other programs hardly disturb.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from flashlight.lib.text.decoder import (
    LM,
    CriterionType,
    LexiconFreeDecoder,
    LexiconFreeDecoderOptions,
    LMState,
    ZeroLM,
)
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Row, report, report_ratio
from benchmarks.timing import print_ratios, take_turns
from sonosco_like.data.text import Alphabet
from sonosco_like.decoding import (
    AttentionBeamDecoder,
    CTCBeamDecoder,
    Decoder,
    GreedyAttentionDecoder,
    GreedyCTCDecoder,
    NGramLanguageModel,
    WordScores,
)
from sonosco_like.decoding.scorers import WordState
from sonosco_like.models import LAS
from sonosco_like.records import BLANK, END, SPECIAL_SYMBOLS, START, Output

FRAMES, THRESHOLD = 250, 50.0
BARE, OURS = "bare flashlight-text", "CTCBeamDecoder"
SHAPES = {32: ((1, 16), (2, 4), (4, 2)), 500: ((1, 2),)}  # batches and utterances, by the number of labels


class Pieces:
    """A vocabulary of so many word pieces."""

    def __init__(self, size: int) -> None:
        self.symbols = [*SPECIAL_SYMBOLS, *(f"▁{number}" for number in range(size - len(SPECIAL_SYMBOLS)))]

    def decode(self, labels: Sequence[int]) -> str:
        """The pieces as text."""
        return "".join(self.symbols[label] for label in labels).replace("▁", " ").strip()


def trained_model_output(utterances: int, labels: int, seed: int = 0) -> Output:
    """What a trained CTC model gives: blanks with a short, sure peak per label, and doubt in every tenth frame."""
    random = np.random.default_rng(seed)
    logits_BSV = random.normal(size=(utterances, FRAMES, labels)) * 1.5
    for logits_SV in logits_BSV:
        for frame in range(FRAMES):
            said = random.integers(len(SPECIAL_SYMBOLS), labels) if frame % 4 == 0 else BLANK
            logits_SV[frame, said] += random.uniform(6, 14)
            if random.random() < 0.1:
                logits_SV[frame, random.integers(len(SPECIAL_SYMBOLS), labels)] += 9
    logits_BSV[..., [START, END]] = -30.0
    lengths_B = torch.full((utterances,), FRAMES)
    return Output(torch.zeros(utterances, FRAMES, 1), lengths_B, ctc_logits_BSV=torch.tensor(logits_BSV).float())


def bare_flashlight(log_probs_BSV: NDArray[np.float32], beam_size: int, lm: LM | None = None) -> list[float]:
    """Nothing but the package: emissions in, the best score and its labels out."""
    scores = []
    for log_probs_SV in log_probs_BSV:
        frames, labels = log_probs_SV.shape
        options = LexiconFreeDecoderOptions(beam_size, labels, THRESHOLD, 1.0, 0.0, True, CriterionType.CTC)
        search = LexiconFreeDecoder(options, lm or ZeroLM(), BLANK, BLANK, [])
        best = search.decode(log_probs_SV.ctypes.data, frames, labels)[0]
        scores.append((best.score, best.tokens)[0])
    return scores


def compare_ctc(batches: int, utterances: int, labels: int, beam_size: int) -> float:
    """The same beams by flashlight-text and by our decoder, over several batches one after another.

    Returns the time of our decoder as a ratio to that of flashlight-text.
    """
    outputs, vocabulary = [trained_model_output(utterances, labels, seed) for seed in range(batches)], Pieces(labels)
    emissions = [output.ctc_logits_BSV.log_softmax(-1).numpy() for output in outputs]  # type: ignore[union-attr]
    expected = [score for log_probs_BSV in emissions for score in bare_flashlight(log_probs_BSV, beam_size)]
    candidates: dict[str, Callable[[], object]] = {
        BARE: lambda: [bare_flashlight(log_probs_BSV, beam_size) for log_probs_BSV in emissions]
    }
    decoder = CTCBeamDecoder(beam_size=beam_size, beam_threshold=THRESHOLD)
    found = [hypotheses[0].score for output in outputs for hypotheses in decoder.decode(output, vocabulary)]
    assert np.allclose(found, expected, rtol=1e-5), "not the same result"
    candidates[OURS] = partial(decode_all, decoder, outputs, vocabulary)
    candidates["GreedyCTCDecoder"] = partial(decode_all, GreedyCTCDecoder(), outputs, vocabulary)
    print(f"\nCTC, {batches} x {utterances} x {FRAMES} frames, {labels} labels, beam {beam_size}, same scores:")
    seconds = take_turns(candidates, 5 if labels < 100 else 3, time.process_time)
    print_ratios(seconds, BARE)
    return seconds[OURS] / seconds[BARE]


def decode_all(decoder: Decoder, outputs: list[Output], vocabulary: Pieces) -> None:
    """One batch after another."""
    for output in outputs:
        decoder.decode(output, vocabulary)


class WordsInFlashlight(LM):  # type: ignore[misc]
    """Our word scores asked by flashlight-text label by label: the only way to give it the same task."""

    def __init__(self, words: WordScores, symbols: Sequence[str]) -> None:
        super().__init__()
        scorer = words.scorer(symbols)
        assert scorer is not None
        self.scorer = scorer
        self.states: dict[LMState, WordState] = {}

    def start(self, start_with_nothing: bool) -> LMState:
        """The state before the first label."""
        return self._keep(LMState(), self.scorer.start())

    def score(self, state: LMState, label: int) -> tuple[LMState, float]:
        """The state after a label, and what the label adds."""
        before = self.states[state]
        child = state.child(label)
        if child not in self.states:
            self._keep(child, self.scorer.extend(before, label))
        return child, self.scorer.next_scores(before)[label]

    def finish(self, state: LMState) -> tuple[LMState, float]:
        """What the end adds."""
        return state, self.scorer.finish(self.states[state])

    def _keep(self, state: LMState, words: WordState) -> LMState:
        self.states[state] = words
        return state


def compare_words(beam_size: int, folder: Path) -> None:
    """Beam search with a word language model over characters."""
    vocabulary = Alphabet()
    output = trained_model_output(8, vocabulary.size)
    log_probs_BSV = output.ctc_logits_BSV.log_softmax(-1).numpy()  # type: ignore[union-attr]
    model = NGramLanguageModel(path=_bigrams(folder / "lm.arpa"), reader="arpa")
    words = WordScores(language_model=model, word_bonus=1.0)
    decoder = CTCBeamDecoder(beam_size=beam_size, beam_threshold=THRESHOLD, words=words)
    expected = bare_flashlight(log_probs_BSV, beam_size, WordsInFlashlight(words, vocabulary.symbols))
    found = [hypotheses[0].score for hypotheses in decoder.decode(output, vocabulary)]
    assert np.allclose(found, expected, rtol=1e-4), "not the same result"
    print(f"\nCTC with a word bigram, 8 x {FRAMES} frames, {vocabulary.size} labels, beam {beam_size}, same scores:")
    seconds = take_turns(
        {
            "flashlight-text asking our word scores": lambda: bare_flashlight(
                log_probs_BSV, beam_size, WordsInFlashlight(words, vocabulary.symbols)
            ),
            "CTCBeamDecoder with words": lambda: decoder.decode(output, vocabulary),
            f"{BARE}, no words": lambda: bare_flashlight(log_probs_BSV, beam_size),
        },
        repeats=3,
        clock=time.process_time,
    )
    print_ratios(seconds, f"{BARE}, no words")
    asking = "flashlight-text asking our word scores"
    report_ratio(f"CTC with a word bigram, beam {beam_size}", seconds, "CTCBeamDecoder with words", asking)


def _bigrams(path: Path) -> Path:
    letters = Alphabet().characters.strip()
    words = [first + second for first in letters for second in letters]
    pairs = [(first, second) for first in words[::7] for second in words[::11]]
    lines = ["\\data\\", f"ngram 1={len(words) + 3}", f"ngram 2={len(pairs)}", "", "\\1-grams:"]
    lines += ["-3\t<unk>", "0\t<s>\t-0.3", "-1\t</s>", *(f"-2.9\t{word}\t-0.3" for word in words)]
    lines += ["", "\\2-grams:", *(f"-1.2\t{first} {second}" for first, second in pairs), "", "\\end\\", ""]
    path.write_text("\n".join(lines))
    return path


def compare_attention() -> None:
    """What a beam costs more than greedy. The model is untrained: beams run to the longest text allowed."""
    torch.manual_seed(0)
    vocabulary = Alphabet()
    model = LAS.small(vocabulary.size).eval()
    features_BTF, lengths_B = torch.randn(8, 300, 40), torch.full((8,), 300)
    with torch.no_grad():
        encoded_BSD, encoded_lengths_B = model.encode(features_BTF, lengths_B)
        output = Output(encoded_BSD, encoded_lengths_B, ctc_logits_BSV=model.ctc_logits(encoded_BSD))
    decoders: dict[str, Decoder] = {
        "greedy": GreedyAttentionDecoder(max_length_ratio=0.3),
        "beam 8": AttentionBeamDecoder(beam_size=8, max_length_ratio=0.3),
        "beam 8 with CTC": AttentionBeamDecoder(beam_size=8, ctc_weight=0.3, max_length_ratio=0.3),
        "beam 32": AttentionBeamDecoder(beam_size=32, max_length_ratio=0.3),
    }
    print(f"\nAttention (LAS, small), 8 utterances of {encoded_BSD.shape[1]} encoded frames:")
    candidates: dict[str, Callable[[], object]] = {
        name: partial(decoder.decode, output, vocabulary, model=model) for name, decoder in decoders.items()
    }
    seconds = take_turns(candidates, 3, time.process_time)
    print_ratios(seconds, "greedy")
    for name in list(decoders)[1:]:
        report_ratio("attention, 8 utterances", seconds, name, "greedy")


def main() -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    for labels, shapes in SHAPES.items():
        for beam_size in (16, 50):
            worst = max(compare_ctc(*shape, labels, beam_size) for shape in shapes)
            which = f", worst of {len(shapes)} shapes of batches" if len(shapes) > 1 else ""
            report(Row(f"CTC, {labels} labels, beam {beam_size}, the same scores{which}", worst, BARE, goal=1.2))
    for beam_size in (16, 50):
        alone = compare_ctc(8, 1, 32, beam_size)
        report(Row(f"CTC, 32 labels, beam {beam_size}, the same scores, one utterance alone", alone, BARE))
    with tempfile.TemporaryDirectory() as folder:
        compare_words(16, Path(folder))
    compare_attention()


if __name__ == "__main__":
    main()
