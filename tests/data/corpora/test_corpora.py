"""Public corpora, each in the layout of the real one, from folders, archives and a web server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile
from layouts import (
    make_an4,
    make_common_voice,
    make_librispeech,
    make_tedlium,
    make_voxforge,
    pack,
    sound,
    write,
)

from sonosco_like.data.corpora.corpus import Corpus, prepare_corpus
from sonosco_like.data.corpora.download import Download
from sonosco_like.data.corpora.public import AN4, TEDLIUM, CommonVoice, LibriSpeech, VoxForge
from sonosco_like.data.manifest import Manifest
from sonosco_like.errors import DataError, StorageError, UsageError

ALL: dict[str, tuple[Callable[[], Corpus], Callable[[Path], Path]]] = {
    "an4": (AN4, make_an4),
    "librispeech": (LibriSpeech, make_librispeech),
    "common-voice": (CommonVoice, make_common_voice),
    "tedlium": (TEDLIUM, make_tedlium),
    "voxforge": (VoxForge, make_voxforge),
}
every_corpus = pytest.mark.parametrize(("corpus", "make"), ALL.values(), ids=ALL.keys())


def rows(target: Path, split: str) -> list[dict]:
    return [json.loads(line) for line in (target / f"{split}.jsonl").read_text().splitlines()]


@every_corpus
def test_three_splits_with_disjoint_speakers_and_audio_as_long_as_it_says(corpus, make, tmp_path):
    prepared = prepare_corpus(corpus(), tmp_path / "out", make(tmp_path / "source"))
    assert set(prepared.manifests) == {"train", "val", "test"}
    speakers = []
    for path in prepared.manifests.values():
        manifest = Manifest.read(path)
        speakers.append({utterance.speaker for utterance in manifest})
        for utterance in manifest:
            length = soundfile.info(utterance.audio_filepath).duration
            assert 0 < utterance.duration <= length - utterance.offset + 0.1
            assert utterance.text == " ".join(utterance.text.split()) != ""
    assert all(speakers)
    assert sum(map(len, speakers)) == len(set.union(*speakers))


@every_corpus
def test_an_archive_a_folder_of_archives_and_a_folder_give_the_same_rows(corpus, make, tmp_path):
    source = make(tmp_path / "source")
    archive = pack(source, tmp_path / "corpus.tar.gz")
    (tmp_path / "downloaded").mkdir()
    shutil.copy(archive, tmp_path / "downloaded")
    for name, origin in (("folder", source), ("archive", archive), ("archives", tmp_path / "downloaded")):
        prepare_corpus(corpus(), tmp_path / name, origin)
    for split in ("train", "val", "test"):
        found = [
            [
                {key: value for key, value in row.items() if key != "audio_filepath"}
                for row in rows(tmp_path / name, split)
            ]
            for name in ("folder", "archive", "archives")
        ]
        assert found[0] == found[1] == found[2]


@every_corpus
def test_a_corpus_unpacked_into_its_folder_can_be_moved(corpus, make, tmp_path):
    prepare_corpus(corpus(), tmp_path / "out", pack(make(tmp_path / "source"), tmp_path / "corpus.tgz"))
    shutil.move(tmp_path / "out", tmp_path / "moved")
    for split in ("train", "val", "test"):
        assert all(not row["audio_filepath"].startswith(("/", "..")) for row in rows(tmp_path / "moved", split))
        assert all(Path(each.audio_filepath).is_file() for each in Manifest.read(tmp_path / "moved" / f"{split}.jsonl"))


@every_corpus
def test_a_folder_without_the_corpus_is_refused_with_what_was_expected(corpus, make, tmp_path):
    write(tmp_path / "source" / "notes.txt", "nothing here")
    with pytest.raises(DataError, match="Expected somewhere below it"):
        prepare_corpus(corpus(), tmp_path / "out", tmp_path / "source")
    assert not list((tmp_path / "out").glob("*.jsonl"))


@every_corpus
def test_the_same_seed_gives_the_same_splits(corpus, make, tmp_path):
    source = make(tmp_path / "source")
    for name in ("one", "two"):
        prepare_corpus(corpus(), tmp_path / name, source, seed=7)
    for split in ("train", "val", "test"):
        assert rows(tmp_path / "one", split) == rows(tmp_path / "two", split)


def test_an4_keeps_the_official_test_speakers_and_reads_sphere(tmp_path):
    prepare_corpus(AN4(), tmp_path / "out", make_an4(tmp_path / "source"))
    assert {row["speaker"] for row in rows(tmp_path / "out", "test")} == {"fcaw", "mmxg"}
    assert len({row["speaker"] for row in rows(tmp_path / "out", "train")}) == 9
    first = rows(tmp_path / "out", "test")[0]
    assert (first["id"], first["text"], first["duration"]) == ("an1-fcaw-b", "enter six twenty", 0.5)
    assert {row["text"] for row in rows(tmp_path / "out", "train")} == {"enter six twenty", "g l e n n"}


def test_an4_texts_are_found_by_their_id_and_lines_that_make_no_sense_are_named(tmp_path):
    transcription = make_an4(tmp_path / "source") / "an4" / "etc" / "an4_test.transcription"
    write(transcription, *reversed(transcription.read_text().splitlines()[1:]))
    prepared = prepare_corpus(AN4(), tmp_path / "out", tmp_path / "source")
    assert {row["id"]: row["text"] for row in rows(tmp_path / "out", "test")}["an1-mmxg-b"] == "enter six twenty"
    assert prepared.left_out == ["an1-fcaw-b has no text."]
    write(transcription, "NO ID AT ALL")
    with pytest.raises(DataError, match=r"an4_test\.transcription, line 1"):
        prepare_corpus(AN4(), tmp_path / "again", tmp_path / "source")


def test_an4_without_its_transcripts_or_in_another_encoding_is_refused_by_name(tmp_path):
    transcription = make_an4(tmp_path / "source") / "an4" / "etc" / "an4_test.transcription"
    transcription.write_bytes("<s> CAFÉ </s> (an1-fcaw-b)".encode("latin-1"))
    with pytest.raises(DataError, match=r"an4_test\.transcription is not UTF-8 text"):
        prepare_corpus(AN4(), tmp_path / "out", tmp_path / "source")
    transcription.unlink()
    with pytest.raises(DataError, match=r"an4_test\.transcription cannot be read: No such file"):
        prepare_corpus(AN4(), tmp_path / "again", tmp_path / "source")


def test_librispeech_takes_the_wanted_parts_only(tmp_path):
    source = make_librispeech(tmp_path / "source", ("train-clean-100", "train-clean-360", "dev-clean", "test-other"))
    prepared = prepare_corpus(LibriSpeech(["train-clean-360", "dev-clean"]), tmp_path / "out", source)
    assert set(prepared.manifests) == {"train", "val"}
    assert {row["speaker"] for row in rows(tmp_path / "out", "train")} == {"103", "104"}
    assert rows(tmp_path / "out", "train")[0]["text"] == "go do you hear"
    with pytest.raises(UsageError, match="did you mean 'dev-clean'"):
        LibriSpeech(["devclean"])


def test_librispeech_itself_or_one_part_of_it_can_be_the_folder(tmp_path):
    source = make_librispeech(tmp_path / "source") / "LibriSpeech"
    prepare_corpus(LibriSpeech(), tmp_path / "whole", source)
    prepare_corpus(LibriSpeech(), tmp_path / "part", source / "dev-clean")
    assert rows(tmp_path / "whole", "val")[0]["id"] == rows(tmp_path / "part", "val")[0]["id"]
    assert not (tmp_path / "part" / "train.jsonl").exists()


@pytest.mark.parametrize("durations", [True, False])
def test_common_voice_takes_lengths_from_its_table_or_from_the_clips(durations, tmp_path):
    prepare_corpus(CommonVoice(), tmp_path / "out", make_common_voice(tmp_path / "source", durations))
    found = rows(tmp_path / "out", "val")
    assert [row["duration"] for row in found] == pytest.approx([0.5, 1.5], abs=0.08)
    assert found[0]["text"] == '"Don\'t stop," he said 0.'


def test_common_voice_keeps_a_speaker_of_two_splits_in_the_one_that_measures(tmp_path):
    prepared = prepare_corpus(CommonVoice(), tmp_path / "out", make_common_voice(tmp_path / "source"))
    assert len(rows(tmp_path / "out", "train")) == 1
    assert prepared.left_out == ["common_voice_en_train1 is in train, but its speaker is in test too."]


def test_common_voice_tables_that_make_no_sense_are_named(tmp_path):
    root = make_common_voice(tmp_path / "source") / "cv-corpus-17.0-2024-03-15" / "en"
    with (root / "dev.tsv").open("a") as table:
        table.write("devspeaker\tcut-off.mp3\n")
    prepared = prepare_corpus(CommonVoice(), tmp_path / "out", tmp_path / "source")
    assert "cut-off has no text." in prepared.left_out
    write(root / "clip_durations.tsv", "clip\tduration[ms]", "common_voice_en_dev0.mp3\tlong")
    with pytest.raises(DataError, match=r"clip_durations\.tsv has a duration that is no number"):
        prepare_corpus(CommonVoice(), tmp_path / "again", tmp_path / "source")
    (root / "clip_durations.tsv").write_bytes(b"clip\tduration[ms]\n\xff.mp3\t500\n")
    with pytest.raises(DataError) as caught:
        prepare_corpus(CommonVoice(), tmp_path / "third", tmp_path / "source")
    assert str(caught.value).startswith(f"{root / 'clip_durations.tsv'} cannot be read as a table in UTF-8")


def test_common_voice_has_one_language_at_a_time(tmp_path):
    make_common_voice(tmp_path / "source", language="en")
    make_common_voice(tmp_path / "source", language="de")
    prepare_corpus(CommonVoice("de"), tmp_path / "out", tmp_path / "source")
    assert {row["id"][:15] for row in rows(tmp_path / "out", "test")} == {"common_voice_de"}


def test_common_voice_says_how_to_get_it(tmp_path):
    with pytest.raises(UsageError, match=r"commonvoice\.mozilla\.org.*--source"):
        prepare_corpus(CommonVoice(), tmp_path / "out")


@pytest.mark.parametrize("legacy", [True, False])
def test_tedlium_segments_have_offsets_and_clean_texts(legacy, tmp_path):
    prepared = prepare_corpus(TEDLIUM(), tmp_path / "out", make_tedlium(tmp_path / "source", legacy))
    first, second = rows(tmp_path / "out", "val")
    assert (first["offset"], first["duration"], first["speaker"]) == (0.5, 1.25, "AlGore_2009")
    assert first["text"] == "what i'm saying is the world's"
    assert (second["offset"], second["duration"], second["text"]) == (2.0, 2.0, "the end")
    assert len(prepared.left_out) == 6  # in each talk a segment without words, and one behind its end


def test_tedlium_lines_that_make_no_sense_are_named(tmp_path):
    write(make_tedlium(tmp_path / "source") / "TEDLIUM_release-3/legacy/dev/stm/bad.stm", "bad 1 bad soon later")
    with pytest.raises(DataError, match=r"bad\.stm, line 1"):
        prepare_corpus(TEDLIUM(), tmp_path / "out", tmp_path / "source")


def test_voxforge_counts_anonymous_submissions_as_speakers_and_others_by_name(tmp_path):
    prepare_corpus(VoxForge(), tmp_path / "out", make_voxforge(tmp_path / "source"))
    found = [row for split in ("train", "val", "test") for row in rows(tmp_path / "out", split)]
    speakers = {row["speaker"] for row in found}
    assert len(found) == 24
    assert len(speakers) == 11
    assert {"ralf", "anonymous-20080425-ab0", "anonymous-20080425-ab1"} < speakers
    assert {row["text"] for row in found} == {"hello world", "it's me"}
    assert {Path(row["audio_filepath"]).suffix for row in found} == {".wav", ".flac"}


def test_broken_missing_and_wordless_recordings_are_left_out_and_counted(tmp_path):
    make_voxforge(tmp_path / "source")
    submission = tmp_path / "source" / "person0-20080425-ab4"
    (submission / "wav" / "a0001.wav").write_bytes(b"broken")
    (submission / "wav" / "a0002.wav").unlink()
    write(tmp_path / "source" / "person1-20080425-ab5" / "etc" / "PROMPTS", "a0001 ", "a0002 FINE")
    prepared = prepare_corpus(VoxForge(), tmp_path / "out", tmp_path / "source")
    assert len(prepared.left_out) == 3
    assert sum(len(rows(tmp_path / "out", split)) for split in ("train", "val", "test")) == 21


def test_a_corpus_of_which_nothing_can_be_read_is_an_error(tmp_path):
    for path in make_voxforge(tmp_path / "source").rglob("a*.*"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="None of the 24 utterances"):
        prepare_corpus(VoxForge(), tmp_path / "out", tmp_path / "source")


def test_a_source_that_is_no_archive_or_is_not_there_is_refused(tmp_path):
    sound(tmp_path / "x.wav")
    with pytest.raises(UsageError, match="neither a folder nor an archive"):
        prepare_corpus(AN4(), tmp_path / "out", tmp_path / "x.wav")
    with pytest.raises(UsageError, match="does not exist"):
        prepare_corpus(AN4(), tmp_path / "out", tmp_path / "nothing")


def test_manifests_are_not_written_over_without_force(tmp_path):
    source = make_an4(tmp_path / "source")
    prepare_corpus(AN4(), tmp_path / "out", source)
    with pytest.raises(UsageError, match="--force"):
        prepare_corpus(AN4(), tmp_path / "out", source)
    prepare_corpus(AN4(), tmp_path / "out", source, force=True)


def test_force_unpacks_a_changed_archive_again(tmp_path):
    source = make_an4(tmp_path / "source")
    prepare_corpus(AN4(), tmp_path / "out", pack(source, tmp_path / "an4.tgz"))
    transcription = source / "an4" / "etc" / "an4_test.transcription"
    transcription.write_text(transcription.read_text().replace("ENTER", "CHANGED"))
    prepare_corpus(AN4(), tmp_path / "out", pack(source, tmp_path / "an4.tgz"), force=True)
    assert {row["text"] for row in rows(tmp_path / "out", "test")} == {"changed six twenty", "g l e n n"}


def test_what_another_source_left_behind_is_not_taken_along(tmp_path):
    prepare_corpus(VoxForge(), tmp_path / "out", pack(make_voxforge(tmp_path / "all"), tmp_path / "all.tgz"))
    for number in range(3):
        submission = f"new{number}-20090101-xyz"
        sound(tmp_path / "few" / submission / "wav" / "a1.wav")
        write(tmp_path / "few" / submission / "etc" / "PROMPTS", "a1 FEW")
    prepare_corpus(VoxForge(), tmp_path / "out", pack(tmp_path / "few", tmp_path / "few.tgz"), force=True)
    texts = [row["text"] for split in ("train", "val", "test") for row in rows(tmp_path / "out", split)]
    assert texts == ["few"] * 3


class OnThisMachine(AN4):
    """AN4 with another address."""

    def __init__(self, url: str) -> None:
        self._url = url

    def downloads(self) -> list[Download]:
        return [Download(self._url)]


def test_a_download_that_was_given_up_is_continued_by_the_same_command(web, tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    content = pack(make_an4(tmp_path / "source"), tmp_path / "an4.tgz").read_bytes()
    web.files["an4.tgz"], web.versions["an4.tgz"] = content, '"one"'
    web.break_after = [1000, 0, 0, 0, 0, 0]
    corpus = OnThisMachine(web.url("an4.tgz"))
    with pytest.raises(StorageError, match="the same command continues it"):
        prepare_corpus(corpus, tmp_path / "out")
    prepare_corpus(corpus, tmp_path / "out")
    assert web.requests[-1] == ("an4.tgz", "bytes=1000-")
    assert len(rows(tmp_path / "out", "test")) == 4
    assert list((tmp_path / "out" / "downloads").iterdir()) == []
    prepare_corpus(corpus, tmp_path / "out", force=True)
    assert len(web.requests) == 7


def test_voxforge_is_downloaded_from_the_links_of_its_page(web, tmp_path):
    source = make_voxforge(tmp_path / "source")
    for submission in sorted(source.iterdir()):
        inner = tmp_path / "inner" / submission.name
        shutil.copytree(submission, inner / submission.name)
        web.files[f"vox/{submission.name}.tgz"] = pack(inner, tmp_path / "one.tgz").read_bytes()
    web.files["vox/"] = "".join(f'<a href="{path.name}.tgz">x</a>' for path in source.iterdir()).encode()
    prepare_corpus(VoxForge(submissions=5, index=web.url("vox/")), tmp_path / "out")
    assert sum(len(rows(tmp_path / "out", split)) for split in ("train", "val", "test")) == 10


def test_published_checksums_look_like_checksums():
    downloads = [*LibriSpeech().downloads(), *TEDLIUM().downloads()]
    assert all(len(bytes.fromhex(download.sha256)) == 32 for download in downloads)
    assert all(download.url.startswith("https://") for download in downloads)
    assert AN4().downloads()[0].name == "an4_sphere.tar.gz"
