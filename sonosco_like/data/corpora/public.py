"""Public corpora: how each is laid out on disk, and what its splits are."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from sonosco_like.data.corpora.corpus import SPLIT_OF_PART, Corpus, CorpusUtterance
from sonosco_like.data.corpora.download import Download, list_downloads
from sonosco_like.data.tools.files import read_text
from sonosco_like.errors import DataError, UsageError, as_sentence, did_you_mean
from sonosco_like.untrusted_files import open_regular_file, read_lines

_LINE = re.compile(r"(?:<s>)?(?P<text>[^<>()]*)(?:</s>)?\s*\((?P<id>[^()]+)\)\s*")


class AN4(Corpus):
    """AN4: an hour of letters, digits and short answers, recorded at CMU in 1991. Made by Alex Acero.

    The official test speakers are kept; a tenth of the others is for validation.

    an4/etc/an4_{train,test}.fileids           an4_clstk/fash/an251-fash-b
    an4/etc/an4_{train,test}.transcription     <s> YES </s> (an251-fash-b)
    an4/wav/an4_clstk/fash/an251-fash-b.sph
    """

    expected: ClassVar[str] = "etc/an4_train.fileids"
    shares: ClassVar[Mapping[str, float]] = {"train": 0.9, "val": 0.1}

    def downloads(self) -> Sequence[Download]:
        """The archive with NIST Sphere files; CMU publishes no checksum."""
        return [Download("http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz")]

    def rows(self, folder: Path) -> Iterator[CorpusUtterance]:
        """The utterances of both lists."""
        for part, split in (("train", None), ("test", "test")):
            for fileids in sorted(folder.rglob(f"an4_{part}.fileids")):
                yield from _read_list(fileids, split)


def _read_list(fileids: Path, split: str | None) -> Iterator[CorpusUtterance]:
    texts = _read_texts(fileids.with_suffix(".transcription"))
    for name in read_text(fileids).split():
        path = fileids.parent.parent / "wav" / f"{name}.sph"
        yield CorpusUtterance(path.stem, path, texts.get(path.stem, ""), path.parent.name, split)


def _read_texts(transcription: Path) -> dict[str, str]:
    texts = {}
    for number, line in enumerate(read_text(transcription).splitlines(), 1):
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise DataError(f"{transcription}, line {number}: expected words and an id in brackets, got {line!r}.")
        texts[match["id"]] = " ".join(match["text"].lower().split())
    return texts


class CommonVoice(Corpus):
    """Common Voice: sentences read by volunteers in many languages (Ardila et al. 2020).

    One language with its official splits. Texts keep their case and punctuation, which training may clean.

    cv-corpus-17.0-2024-03-15/en/{train,dev,test}.tsv     client_id  path  sentence ...
    cv-corpus-17.0-2024-03-15/en/clip_durations.tsv       clip  duration[ms]; not in old releases
    cv-corpus-17.0-2024-03-15/en/clips/common_voice_en_1234.mp3
    """

    expected: ClassVar[str] = "en/train.tsv and en/clips/"

    def __init__(self, language: str = "en") -> None:
        self._language = language

    def downloads(self) -> Sequence[Download]:
        """None: Mozilla gives the archives only to people who have agreed to the terms."""
        raise UsageError(
            "Common Voice cannot be downloaded without agreeing to its terms. Get the archive of your language from "
            "https://commonvoice.mozilla.org/datasets, and give it with --source."
        )

    def rows(self, folder: Path) -> Iterator[CorpusUtterance]:
        """The utterances of the language; the folder may also be that of the language itself."""
        for part, split in SPLIT_OF_PART.items():
            for table in sorted(folder.absolute().rglob(f"{part}.tsv")):
                if table.parent.name == self._language:
                    yield from _read_table(table, split)


def _read_table(table: Path, split: str) -> Iterator[CorpusUtterance]:
    milliseconds = _read_durations(table.parent / "clip_durations.tsv")
    for record in _records(table, ("client_id", "path", "sentence")):
        name = record["path"] if Path(record["path"]).suffix else f"{record['path']}.mp3"
        duration = milliseconds.get(name)
        yield CorpusUtterance(
            id=Path(name).stem,
            path=table.parent / "clips" / name,
            text=" ".join(record["sentence"].split()),
            speaker=record["client_id"],
            split=split,
            duration=None if not duration else duration / 1000,
        )


def _read_durations(table: Path) -> dict[str, float]:
    if not table.exists():
        return {}
    records = _records(table, ("clip", "duration[ms]"))
    return {record["clip"]: _milliseconds(record["duration[ms]"], table) for record in records}


def _milliseconds(text: str, table: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{table} has a duration that is no number of milliseconds: {text!r}.") from None


def _records(table: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows of a table that must have these columns; missing cells of a short row are empty."""
    try:
        with open_regular_file(table) as stream:
            lines = (line.decode() for line in read_lines(stream, table))
            reader = csv.DictReader(lines, restval="", delimiter="\t", quoting=csv.QUOTE_NONE)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{table} has no column {missing[0]!r}; is it of Common Voice?")
            yield from reader
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table} cannot be read as a table in UTF-8: {as_sentence(error)} Get it again.") from None


# SHA-256 of the archives, as torchaudio publishes them
PARTS = {
    "train-clean-100": "d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
    "train-clean-360": "146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf",
    "train-other-500": "ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2",
    "dev-clean": "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
    "dev-other": "12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365",
    "test-clean": "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
    "test-other": "d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29",
}
DEFAULT_PARTS = ("train-clean-100", "dev-clean", "test-clean")


class LibriSpeech(Corpus):
    """LibriSpeech: 960 hours of read books (Panayotov et al. 2015), https://www.openslr.org/12.

    The official splits; `parts` chooses some of the seven.

    LibriSpeech/dev-clean/84/121123/84-121123.trans.txt     84-121123-0000 GO DO YOU HEAR
    LibriSpeech/dev-clean/84/121123/84-121123-0000.flac
    """

    expected: ClassVar[str] = "dev-clean/84/121123/84-121123.trans.txt"

    def __init__(self, parts: Sequence[str] = DEFAULT_PARTS) -> None:
        for part in parts:
            if part not in PARTS:
                raise UsageError(f"LibriSpeech has no part {part!r}{did_you_mean(part, PARTS)}")
        self._parts = tuple(parts)

    def downloads(self) -> Sequence[Download]:
        """One archive for each part."""
        return [Download(f"https://www.openslr.org/resources/12/{part}.tar.gz", PARTS[part]) for part in self._parts]

    def rows(self, folder: Path) -> Iterator[CorpusUtterance]:
        """The utterances of the wanted parts; the folder may also be one of them."""
        for transcript in sorted(folder.absolute().rglob("*.trans.txt")):
            part = transcript.parent.parent.parent.name
            if part in self._parts:
                yield from _read_chapter(transcript, SPLIT_OF_PART[part.partition("-")[0]])


def _read_chapter(transcript: Path, split: str) -> Iterator[CorpusUtterance]:
    for line in read_text(transcript).splitlines():
        name, _, text = line.partition(" ")
        yield CorpusUtterance(
            id=name,
            path=transcript.parent / f"{name}.flac",
            text=text.strip().lower(),
            speaker=transcript.parent.parent.name,
            split=split,
        )


_NOT_SCORED = "ignore_time_segment_in_scoring"
_MARKS = re.compile(
    r"<[^<>]*>|\{[^{}]*\}|\[[^\[\]]*\]|\([^()]*\)"
)  # <unk>, {NOISE}, [NOISE], word(2), (name-of-utterance)
_LOOSE_SUFFIX = re.compile(r" (?=')")  # i 'm


class TEDLIUM(Corpus):
    """TED-LIUM: talks with aligned transcripts; release 3 has 452 hours (Hernandez et al. 2018), 1 and 2 have less.

    The official splits, in release 3 those called `legacy`; a talk is a speaker.

    TEDLIUM_release-3/legacy/dev/stm/AlGore_2009.stm    AlGore_2009 1 AlGore_2009 17.80 28.81 <o,f0,male> what i 'm ...
    TEDLIUM_release-3/legacy/dev/sph/AlGore_2009.sph
    TEDLIUM_release2/dev/stm/AlGore_2009.stm            the same without `legacy`
    """

    expected: ClassVar[str] = "legacy/dev/stm/*.stm and legacy/dev/sph/*.sph"

    def downloads(self) -> Sequence[Download]:
        """Release 3, with the SHA-256 that torchaudio publishes."""
        return [
            Download(
                "https://www.openslr.org/resources/51/TEDLIUM_release-3.tgz",
                "ad1e454d14d1ad550bc2564c462d87c7a7ec83d4dc2b9210f22ab4973b9eccdb",
            )
        ]

    def rows(self, folder: Path) -> Iterator[CorpusUtterance]:
        """The segments of all talks."""
        for part, split in SPLIT_OF_PART.items():
            for transcript in sorted(folder.rglob(f"{part}/stm/*.stm")):
                if "speaker-adaptation" not in transcript.parts:
                    yield from _read_talk(transcript, split)


def _read_talk(transcript: Path, split: str) -> Iterator[CorpusUtterance]:
    audio = transcript.parent.parent / "sph" / f"{transcript.stem}.sph"
    for number, line in enumerate(read_text(transcript, errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith(";;"):
            continue
        fields = line.split(maxsplit=6)
        try:
            start, end = float(fields[3]), float(fields[4])
        except (IndexError, ValueError):
            raise DataError(f"{transcript}, line {number}: expected talk, channel, speaker, start, end.") from None
        text = fields[6] if len(fields) > 6 else ""
        if _NOT_SCORED not in text and end > start:
            yield CorpusUtterance(
                id=f"{transcript.stem}-{number:04d}",
                path=audio,
                text=_clean(text),
                speaker=transcript.stem,
                split=split,
                offset=start,
                duration=round(end - start, 6),
            )


def _clean(text: str) -> str:
    words = " ".join(_MARKS.sub("", text).lower().split())
    return _LOOSE_SUFFIX.sub("", words)


INDEX = "http://www.repository.voxforge1.org/downloads/SpeechCorpus/Trunk/Audio/Main/16kHz_16bit/"
_PROMPTS = ("PROMPTS", "prompts-original")  # the first that is there


class VoxForge(Corpus):
    """VoxForge: sentences read by volunteers, one archive for each submission.

    Speakers are assigned to splits. Each anonymous submission counts as one speaker.

    anonymous-20080425-gxi/etc/PROMPTS             anonymous-20080425-gxi/mfc/a0001 AUTHOR OF THE DANGER TRAIL
    anonymous-20080425-gxi/etc/prompts-original    a0001 Author of the danger trail.
    anonymous-20080425-gxi/wav/a0001.wav           or flac/a0001.flac
    """

    expected: ClassVar[str] = "speaker-20080425-abc/etc/PROMPTS"

    def __init__(self, submissions: int | None = None, index: str = INDEX) -> None:
        if submissions is not None and submissions < 1:
            raise UsageError(f"`submissions` must be at least 1, got {submissions}.")
        self._submissions = submissions
        self._index = index

    def downloads(self) -> Sequence[Download]:
        """The archives that the repository's page links to, or the first of them; no checksums are published."""
        return list_downloads(self._index, ".tgz")[: self._submissions]

    def rows(self, folder: Path) -> Iterator[CorpusUtterance]:
        """The utterances of all submissions."""
        for etc in sorted(path for path in folder.rglob("etc") if path.is_dir()):
            prompts = next((etc / name for name in _PROMPTS if (etc / name).is_file()), None)
            if prompts is not None:
                yield from _read_submission(prompts)


def _read_submission(prompts: Path) -> Iterator[CorpusUtterance]:
    submission = prompts.parent.parent
    for line in read_text(prompts, errors="replace").splitlines():
        name, _, text = line.strip().partition(" ")
        stem = name.rpartition("/")[2]
        candidates = [submission / kind / f"{stem}.{kind}" for kind in ("wav", "flac")]
        yield CorpusUtterance(
            id=f"{submission.name}/{stem}",
            path=next((path for path in candidates if path.is_file()), candidates[0]),
            text=" ".join(text.lower().split()),
            speaker=_speaker(submission.name),
        )


def _speaker(submission: str) -> str:
    name = submission.partition("-")[0]
    return submission if name.lower() == "anonymous" else name
