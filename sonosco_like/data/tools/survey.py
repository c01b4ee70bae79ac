"""A survey of the data for a first config: amounts, lengths, sample rates, speakers and texts, and what is wrong."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sonosco_like.data.manifest import Manifest
from sonosco_like.data.text import TextCleaner
from sonosco_like.data.tools.examination import Examination, examine_recordings
from sonosco_like.errors import DataError, UsageError, list_some
from sonosco_like.progress import Progress, no_progress

_TYPED_AS_ONE = "\u0e33\u0eb3"  # vowels of Thai and Lao, which NFKC would write as two signs
_DOTTED, _DOTTED_IN_LOWER_CASE, _DOTLESS = "\u0130", "i\u0307", "\u0131"
_LETTERS_OF_A_LONG_WORD = 12  # on average; texts that pass this have no spaces between their words
_MOST_FORMS = 8  # shown of special forms of letters
_FEW = 5  # a character that occurs less often can hardly be learned
_EXAMPLES = 3
_LISTED = 12
FULL_RATE = 16_000  # speech has little above half of it
_RARE_RATE = 0.1  # a lower rate decides only if it is that of a larger share of the recordings


@dataclass
class Writing:
    """The texts of a corpus, cleaned: the cleaner that fits them, their characters and words, and why it is so.

    `cleaner` brings every text into one form. `characters`, `words` and `dropped` are counts after, and of, cleaning.
    """

    cleaner: TextCleaner
    characters: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    empty: int = 0
    with_digits: int = 0
    reasons: list[str] = field(default_factory=list)

    @property
    def alphabet(self) -> str:
        """Every character, in order; the space first."""
        return "".join(sorted(self.characters))

    @property
    def has_spaces(self) -> bool:
        """Whether spaces divide the texts into words; in Chinese, Japanese and Thai they do not."""
        letters = sum(map(len, self.words.elements()))
        return letters <= _LETTERS_OF_A_LONG_WORD * max(self.words.total(), 1)


def examine_writing(texts: Sequence[str]) -> Writing:
    """Choose a cleaner for texts, and count what it leaves of them."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    found = _choose_cleaner(raw)
    for text in texts:
        cleaned = found.cleaner(text).strip()
        found.empty += not cleaned
        found.with_digits += any(each.isdecimal() for each in cleaned)
        found.characters.update(cleaned)
        found.words.update(cleaned.split())
    found.texts, found.dropped = len(texts), Counter(found.cleaner.dropped_counts)
    return found


def _choose_cleaner(raw: Counter[str]) -> Writing:
    form, why_form = _choose_normal_form(raw)
    case, why_case = _choose_case(raw)
    cleaner = TextCleaner(normal_form=form, case=case)
    if _DOTTED in raw and case == "lower":
        cleaner.replacements = {**cleaner.replacements, _DOTTED_IN_LOWER_CASE: "i"}
    return Writing(cleaner, reasons=[why_form, why_case])


def _choose_normal_form(raw: Counter[str]) -> tuple[Literal["NFC", "NFKC"], str]:
    """NFKC only where it changes letters or digits beyond NFC, such as full-width ones."""
    changed = [
        each
        for each in raw
        if each.isalnum()
        and each not in _TYPED_AS_ONE
        and unicodedata.normalize("NFKC", each) != unicodedata.normalize("NFC", each)
    ]
    if changed:
        examples = "".join(sorted(changed)[:_MOST_FORMS])
        return "NFKC", f"NFKC: special forms such as {examples!r} become the letters and digits they stand for"
    joined = "; letters with separate accents are joined" if any(map(unicodedata.combining, raw)) else ""
    return "NFC", f"NFC: no text has special forms of letters, which NFKC would change{joined}"


def _choose_case(raw: Counter[str]) -> tuple[Literal["lower", "keep"], str]:
    upper = sum(count for each, count in raw.items() if each != each.lower())
    lower = sum(count for each, count in raw.items() if each != each.upper())
    if not upper and not lower:
        return "keep", "as it is: this script has no case"
    if _DOTLESS in raw and "I" in raw:
        return "lower", "lower; but these texts know a dotless i, and `I` becomes `i`: write them in lower case first"
    if not upper:
        return "lower", "lower, as all texts are already"
    return "lower", f"lower: speech has no case ({upper / (upper + lower):.0%} of the letters are upper case)"


@dataclass
class SetSurvey:
    """The manifest of one set: its utterances, recordings, speakers and labels."""

    path: Path
    durations: NDArray[np.float64]
    examined: Examination
    speakers: Counter[str] = field(default_factory=Counter)
    without_speaker: int = 0
    recordings: set[tuple[str, float]] = field(default_factory=set)
    characters: set[str] = field(default_factory=set)
    letters: list[int] = field(default_factory=list)  # of each cleaned text, with its spaces

    @property
    def hours(self) -> float:
        """The length of all utterances."""
        return float(self.durations.sum()) / 3600

    @property
    def unusable(self) -> int:
        """Rows whose recording cannot be used."""
        faults = self.examined.faults.values()
        return sum(any(not fault.usable for fault in row) for row in faults)


@dataclass
class Survey:
    """Training and validation data, and how the texts of training are written."""

    train: SetSurvey
    val: SetSurvey
    writing: Writing

    @property
    def new_characters(self) -> list[str]:
        """Characters of validation that training does not have."""
        return sorted(self.val.characters - self.writing.characters.keys())

    @property
    def sample_rate(self) -> int:
        """The sample rate for the features: 16 kHz, or a lower one if many recordings have it."""
        rates = self.train.examined.sample_rates
        low = {rate: count for rate, count in rates.items() if rate < FULL_RATE}
        if sum(low.values()) <= _RARE_RATE * rates.total():
            return FULL_RATE
        return min((rate for rate in low if low[rate] > _RARE_RATE * sum(low.values())), default=min(low))


def survey_data(train: Path, val: Path, progress: Progress = no_progress) -> Survey:
    """Read two manifests, all texts and headers, and an hour of audio. Raises DataError for data of no use."""
    of_train, of_val = _read(train), _read(val)
    writing = examine_writing([utterance.text for utterance in of_train])
    result = Survey(_survey_set(of_train, writing, progress), _survey_set(of_val, writing, progress), writing)
    _refuse_shared_recordings(result.train, result.val)
    return result


def _read(path: Path) -> Manifest:
    manifest = Manifest.read(path)
    if not any(utterance.text.strip() for utterance in manifest):
        raise DataError(
            f"None of the {len(manifest):,} rows of {path} has a text. A recogniser learns from recordings with their "
            "transcripts: write each into `text` of its row; or put it into a .txt file beside its recording, and make "
            "the manifest with: sonosco data manifest FOLDER --output all.jsonl"
        )
    return manifest


def _survey_set(manifest: Manifest, writing: Writing, progress: Progress) -> SetSurvey:
    examined = examine_recordings(manifest, "sample", progress)
    found = SetSurvey(manifest.path, manifest.durations, examined)
    with progress(f"reading {manifest.path}", len(manifest), "rows") as advance:
        for utterance in manifest:
            cleaned = writing.cleaner(utterance.text).strip()
            found.characters.update(cleaned)
            found.letters.append(len(cleaned))
            found.recordings.add((str(Path(utterance.audio_filepath).absolute()), utterance.offset))
            if utterance.speaker is None:
                found.without_speaker += 1
            else:
                found.speakers[utterance.speaker] += 1
            advance(1)
    if found.unusable == len(manifest):
        fault = next(fault for row in examined.faults.values() for fault in row if not fault.usable)
        raise DataError(f"No recording of {manifest.path} can be used. The first: {fault.reason}: {fault.detail}")
    return found


def _refuse_shared_recordings(train: SetSurvey, val: SetSurvey) -> None:
    shared = train.recordings & val.recordings
    if shared:
        raise UsageError(
            f"{len(shared):,} of {len(val.recordings):,} recordings of {val.path} are also in {train.path}, such as "
            f"{min(shared)[0]}. Validation needs recordings that the model does not learn from. {split_remedy(train)}"
        )


def split_remedy(train: SetSurvey) -> str:
    """The command that splits a manifest into training and validation data."""
    by = "text" if train.without_speaker else "speaker"
    return f"A manifest with all recordings is split by: sonosco data split {quote(str(train.path))} corpus --by {by}"


def concerns(survey: Survey) -> Iterator[str]:
    """What may keep a recogniser from learning, or its validation from being right, in sentences with the remedy."""
    for each in (survey.train, survey.val):
        yield from _recording_concerns(each)
    yield from _speaker_concerns(survey.train, survey.val)
    yield from _rate_concerns(survey)
    yield from _text_concerns(survey)


def _recording_concerns(data: SetSurvey) -> Iterator[str]:
    if data.unusable:
        faults = [fault for row in data.examined.faults.values() for fault in row if not fault.usable]
        examples = "; ".join(f"{fault.reason}: {fault.detail}" for fault in faults[:_EXAMPLES])
        yield (
            f"{data.unusable:,} of {len(data.durations):,} rows of {data.path} cannot be used and are left out "
            f"({examples}). All: sonosco data stats {quote(str(data.path))}"
        )


def _speaker_concerns(train: SetSurvey, val: SetSurvey) -> Iterator[str]:
    shared = sorted(train.speakers.keys() & val.speakers.keys())
    if shared:
        yield (
            f"{len(shared):,} of {len(val.speakers):,} speakers of {val.path} are in {train.path} too "
            f"({list_some(shared, _EXAMPLES)}). Other people will be recognised worse than validation says. "
            f"{split_remedy(train)}"
        )
    elif not train.speakers or not val.speakers:
        yield (
            "The manifests do not name speakers, so it is not known whether validation has other voices than training. "
            "`sonosco data manifest --speaker` takes them from the paths."
        )
    elif len(train.speakers) < _FEW:
        names = list_some(sorted(train.speakers), _FEW)
        yield f"Speakers of training are only {names}. The recogniser will know these voices, and hardly others."


def _rate_concerns(survey: Survey) -> Iterator[str]:
    rates, rate = survey.train.examined.sample_rates, survey.sample_rate
    lower = {each: count for each, count in rates.items() if each < rate}
    if rate < FULL_RATE:
        yield f"Many recordings have only {rate:,} samples per second, so all audio is brought to this rate."
    elif lower:
        listed = ", ".join(f"{count:,} of {each:,} Hz" for each, count in sorted(lower.items()))
        yield f"Some recordings have less than {rate:,} samples per second ({listed}): they lack the high frequencies."
    of_val = {each for each in survey.val.examined.sample_rates if each < rate}
    if of_val and not lower:
        yield f"Validation has recordings of {list_some(sorted(of_val), 3)} Hz, which training has not."


def _text_concerns(survey: Survey) -> Iterator[str]:
    writing = survey.writing
    if writing.empty:
        yield f"{writing.empty:,} of {writing.texts:,} texts of training are empty. Write them, or remove these rows."
    if writing.with_digits:
        yield (
            f"{writing.with_digits:,} of {writing.texts:,} texts have numbers in digits. Write them as words: a "
            "recording does not show whether 42 or forty-two was written."
        )
    rare = sorted(each for each, count in writing.characters.items() if count < _FEW)
    if rare:
        yield f"Rare characters, fewer than {_FEW} times each: {_quoted(rare)}. Correct the texts if they are mistakes."
    if survey.new_characters:
        yield (
            f"Characters of {survey.val.path} that training does not have: {_quoted(survey.new_characters)}. "
            "They have no label and count as errors."
        )
    if writing.dropped:
        yield f"Cleaning turns into spaces: {_quoted([each for each, _ in writing.dropped.most_common()])}."


def _quoted(characters: list[str]) -> str:
    return list_some([repr(each) for each in characters], _LISTED)
