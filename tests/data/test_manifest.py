"""Manifests: every form is read alike, bad rows are named, folders can move, workers share."""

from __future__ import annotations

import csv
import gc
import gzip
import json
import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from tones import make_corpus, write_rows, write_tone

from sonosco_like.data.manifest import Manifest, derived_id, write_manifest
from sonosco_like.errors import DataError, StorageError
from sonosco_like.records import Utterance

ROWS = [
    {"audio_filepath": "a/one.wav", "duration": 1.5, "text": "one", "speaker": "ann"},
    {"audio_filepath": "a/two.wav", "duration": 2, "text": "twø", "speaker": "bob", "offset": 0.25},
]


def test_json_lines_give_utterances_with_paths_of_the_manifests_folder(tmp_path: Path) -> None:
    manifest = Manifest.read(write_rows(tmp_path / "m.jsonl", ROWS))
    assert len(manifest) == 2
    assert manifest[0] == Utterance("a/one", str(tmp_path / "a/one.wav"), 1.5, "one", "ann", 0.0)
    assert manifest[1] == Utterance("a/two@0.25", str(tmp_path / "a/two.wav"), 2.0, "twø", "bob", 0.25)
    assert list(manifest) == [manifest[0], manifest[-1]]
    np.testing.assert_array_equal(manifest.durations, [1.5, 2.0])


def test_absolute_paths_stay(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "m.jsonl", [{**ROWS[0], "audio_filepath": "/elsewhere/x.flac"}])
    assert Manifest.read(path)[0].audio_filepath == "/elsewhere/x.flac"


def test_keys_of_other_tools_and_blank_lines_are_no_hindrance(tmp_path: Path) -> None:
    lines = [json.dumps({**row, "lang": ["en"], "pred_text": None}) for row in ROWS]
    path = tmp_path / "m.jsonl"
    path.write_text("\n" + lines[0] + "\n\n  \n" + lines[1], encoding="utf-8")
    assert [u.text for u in Manifest.read(path)] == ["one", "twø"]


def test_gzip_is_recognised_by_content(tmp_path: Path) -> None:
    plain = write_rows(tmp_path / "m.jsonl", ROWS)
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(Manifest.read(packed)) == list(Manifest.read(plain))


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + write_rows(tmp_path / "x.jsonl", ROWS).read_bytes())
    assert len(Manifest.read(path)) == 2


def test_numbers_as_ids_and_speakers_are_read_as_text(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "m.jsonl", [{**ROWS[0], "id": 7, "speaker": 19}, {**ROWS[1], "id": "8"}])
    assert [(u.id, u.speaker) for u in Manifest.read(path)] == [("7", "19"), ("8", "bob")]


def test_sonosco_csv_names_transcript_files_and_needs_no_durations(tmp_path: Path) -> None:
    write_tone(tmp_path / "wav/a.wav", 0.5)
    write_tone(tmp_path / "wav/b.wav", 0.75)
    for name, text in (("a", "hello\n"), ("b", "good  bye")):
        (tmp_path / f"wav/{name}.txt").write_text(text, encoding="utf-8")
    path = tmp_path / "m.csv"
    path.write_text(f"{tmp_path}/wav/a.wav,{tmp_path}/wav/a.txt\nwav/b.wav,wav/b.txt\n", encoding="utf-8")
    assert [(u.text, u.duration) for u in Manifest.read(path)] == [("hello", 0.5), ("good bye", 0.75)]


def test_sonosco_csv_with_durations_opens_no_audio(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello", encoding="utf-8")
    (tmp_path / "m.csv").write_text("a.wav,a.txt,1.25\n", encoding="utf-8")
    assert Manifest.read(tmp_path / "m.csv")[0] == Utterance("a", str(tmp_path / "a.wav"), 1.25, "hello")


@pytest.mark.parametrize("header", [("audio_filepath", "text", "duration"), ("Path", "sentence", "duration", "age")])
def test_csv_with_a_header_is_read_by_the_names_of_its_columns(tmp_path: Path, header: tuple[str, ...]) -> None:
    with (tmp_path / "m.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, ["a.wav", "well, then", "1.5", "x"][: len(header)]])
    assert Manifest.read(tmp_path / "m.csv")[0] == Utterance("a", str(tmp_path / "a.wav"), 1.5, "well, then")


def cut(number: int, **changes: object) -> dict[str, object]:
    return {
        "id": f"cut-{number}", "start": 1.5, "duration": 2.5, "channel": 0, "type": "MonoCut",
        "supervisions": [{"id": "s", "start": 0.0, "duration": 2.5, "text": "hi", "speaker": "ann"}],
        "recording": {
            "id": "r", "sampling_rate": 16000, "num_samples": 160000, "duration": 10.0,
            "sources": [{"type": "file", "channels": [0], "source": "long.flac"}],
        },
        **changes,
    }  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_lhotse_cuts_are_parts_of_recordings(tmp_path: Path, packed: bool) -> None:
    path = write_rows(tmp_path / "cuts.jsonl", [cut(1), cut(2, start=0.0, supervisions=[])])
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    audio = str(tmp_path / "long.flac")
    assert list(Manifest.read(path)) == [
        Utterance("cut-1", audio, 2.5, "hi", "ann", 1.5),
        Utterance("cut-2", audio, 2.5, "", None, 0.0),
    ]


def test_lhotse_cuts_we_cannot_read_are_named(tmp_path: Path) -> None:
    mixed = {"id": "m", "tracks": [], "type": "MixedCut"}
    command = cut(3)
    command["recording"]["sources"][0]["type"] = "command"  # type: ignore[index]
    path = write_rows(tmp_path / "cuts.jsonl", [cut(1), mixed, command])
    with pytest.raises(DataError, match=r"row 2: .*mixed cuts(.|\n)*row 3: .*one audio file"):
        Manifest.read(path)


BAD_LINES = {
    "not json": ("nonsense", "is not JSON"),
    "torn": ('{"audio_filepath": "x.wav", "dura', "is not JSON"),
    "list": ("[1, 2]", "must be a JSON object"),
    "no audio": ('{"duration": 1, "text": "x"}', "`audio_filepath` must be"),
    "other name": ('{"audio_path": "x.wav", "duration": 1, "text": "x"}', "did you mean 'audio_path'"),
    "empty audio": ('{"audio_filepath": "", "duration": 1, "text": "x"}', "`audio_filepath` must be"),
    "no text": ('{"audio_filepath": "x.wav", "duration": 1}', "`text` must be"),
    "text number": ('{"audio_filepath": "x.wav", "duration": 1, "text": 7}', "`text` must be the transcript, got 7"),
    "negative": ('{"audio_filepath": "x.wav", "duration": -1, "text": "x"}', "`duration` must be"),
    "duration text": ('{"audio_filepath": "x.wav", "duration": "1 s", "text": "x"}', "`duration` must be .*'1 s'"),
    "not a number": ('{"audio_filepath": "x.wav", "duration": NaN, "text": "x"}', "`duration` must be .*nan"),
    "bad offset": ('{"audio_filepath": "x.wav", "duration": 1, "offset": -0.1, "text": "x"}', "`offset` must be"),
    "id list": ('{"audio_filepath": "x.wav", "duration": 1, "id": [], "text": "x"}', "`id` must be"),
}


@pytest.mark.parametrize(("line", "message"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_row_is_named_with_file_and_number(tmp_path: Path, line: str, message: str) -> None:
    good = json.dumps(ROWS[0])
    path = tmp_path / "m.jsonl"
    path.write_text(f"{good}\n{line}\n{json.dumps(ROWS[1])}\n", encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        Manifest.read(path)
    assert str(path) in str(caught.value)
    assert "row 2:" in str(caught.value)
    assert "row 1:" not in str(caught.value)


def test_several_bad_rows_are_named_at_once_but_not_endlessly(tmp_path: Path) -> None:
    rows = [{"audio_filepath": f"{i}.wav", "duration": 1.0 if i % 2 else -1.0, "text": ""} for i in range(100)]
    with pytest.raises(DataError) as caught:
        Manifest.read(write_rows(tmp_path / "m.jsonl", rows))
    numbers = [f"row {i + 1}:" for i in range(0, 40, 2)]
    assert [number for number in numbers if number in str(caught.value)] == numbers
    assert str(caught.value).count("row ") == 20
    assert "there may be more" in str(caught.value)


def test_bytes_that_are_not_utf8_are_an_error_of_their_row(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(json.dumps(ROWS[0]).encode() + b'\n{"audio_filepath": "\xff.wav", "duration": 1, "text": "x"}\n')
    with pytest.raises(DataError, match="row 2:"):
        Manifest.read(path)


@pytest.mark.parametrize(("content", "message"), [("", "no rows"), (" \n\n", "no rows"), ("[\n{}]", "one JSON list")])
def test_files_that_are_no_manifest_say_so(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "m.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        Manifest.read(tmp_path / "m.jsonl")


def test_a_missing_manifest_and_a_torn_gzip_are_data_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        Manifest.read(tmp_path / "no.jsonl")
    (tmp_path / "m.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROWS[0]).encode() * 50)[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        Manifest.read(tmp_path / "m.jsonl.gz")


def test_csv_rows_with_too_many_cells_or_no_number_are_named(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("a.wav,one,1\nb.wav,one, two,2\nc.wav,x,long\nd.wav\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2: .*got 4\n.*row 3: .*'long'\n.*row 4: .*got 1"):
        Manifest.read(tmp_path / "m.csv")


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_missing_durations_are_measured_however_many_there_are(
    tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sonosco_like.data.manifest._MEASURED_AT_ONCE", at_once)
    seconds = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]
    rows = [{"audio_filepath": write_tone(tmp_path / f"{each}.wav", each).name, "text": ""} for each in seconds]
    rows[3]["duration"] = 0.125
    read = Manifest.read(write_rows(tmp_path / "m.jsonl", rows))
    assert read.durations.tolist() == [*seconds[:3], 0.125, *seconds[4:]]


def test_recordings_without_duration_that_cannot_be_measured_are_named(tmp_path: Path) -> None:
    write_tone(tmp_path / "a.wav", 0.5)
    (tmp_path / "m.csv").write_text("a.wav,one\nb.wav,two\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"row 2: .*does not exist"):
        Manifest.read(tmp_path / "m.csv")


@pytest.mark.parametrize("ids", [("same", "same"), (None, None)])
def test_the_same_id_twice_names_both_rows(tmp_path: Path, ids: tuple[str | None, str | None]) -> None:
    rows = [{"audio_filepath": "x.wav", "duration": 1, "text": "", "id": identity} for identity in ids]
    rows.insert(1, {"audio_filepath": "y.wav", "duration": 1, "text": "", "id": None})
    with pytest.raises(DataError, match="row 3: has the same id as row 1"):
        Manifest.read(write_rows(tmp_path / "m.jsonl", rows))


def test_parts_of_one_file_have_different_ids(tmp_path: Path) -> None:
    rows = [{"audio_filepath": "x.wav", "duration": 1, "text": "", "offset": i / 8} for i in range(3)]
    assert [u.id for u in Manifest.read(write_rows(tmp_path / "m.jsonl", rows))] == ["x", "x@0.125", "x@0.25"]


@given(folder=st.text("ab./-é", max_size=8), suffix=st.sampled_from(["", ".wav", ".tar.gz", "."]))
def test_derived_ids_keep_the_folder_and_drop_one_suffix(folder: str, suffix: str) -> None:
    path = f"{folder}/name{suffix}"
    assert derived_id(path, 0.0) == f"{folder}/name" + {".tar.gz": ".tar"}.get(suffix, "")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    utterances = [
        Utterance("1", str(tmp_path / "data/wav/a.wav"), 1.25, "naïve \u2028 \"text\"", "ann"),
        Utterance("2", str(tmp_path / "other/b.wav"), 0.1 + 0.2, "", None, 1 / 3),
        Utterance("3", "/somewhere/c.wav", 3.0, "three"),
    ]  # fmt: skip
    for name in ("data/m.jsonl", "data/m.jsonl.gz"):
        path = write_manifest(tmp_path / name, iter(utterances))
        read = list(Manifest.read(path))
        assert [Path(u.audio_filepath).resolve() for u in read] == [Path(u.audio_filepath) for u in utterances]
        assert [(u.id, u.duration, u.text, u.speaker, u.offset) for u in read] == [
            (u.id, u.duration, u.text, u.speaker, u.offset) for u in utterances
        ]
    assert (tmp_path / "data/m.jsonl.gz").read_bytes()[:2] == b"\x1f\x8b"
    rows = [json.loads(line) for line in (tmp_path / "data/m.jsonl").read_bytes().splitlines()]
    assert [row["audio_filepath"] for row in rows[:2]] == ["wav/a.wav", "../other/b.wav"]


def test_a_failed_write_leaves_the_old_manifest_and_nothing_else(tmp_path: Path) -> None:
    path = write_manifest(tmp_path / "m.jsonl", [Utterance("1", "a.wav", 1.0, "old")])
    before = path.read_bytes()

    def utterances():  # type: ignore[no-untyped-def]
        yield Utterance("1", "a.wav", 1.0, "new")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError):
        write_manifest(path, utterances())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_manifest_that_cannot_be_written_says_so_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"m\.jsonl could not be written: "):
        write_manifest(tmp_path / "file" / "m.jsonl", [Utterance("1", "a.wav", 1.0, "one")])


def test_recordings_elsewhere_are_found_from_a_manifest_behind_a_link(tmp_path: Path) -> None:
    recording = write_tone(tmp_path / "audio" / "one.wav", 0.1)
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "near").symlink_to(tmp_path / "far" / "away", target_is_directory=True)
    path = write_manifest(tmp_path / "near" / "m.jsonl", [Utterance("1", str(recording), 0.1, "one")])
    (read,) = Manifest.read(path)
    assert Path(read.audio_filepath).samefile(recording)


def test_a_corpus_can_move(tmp_path: Path) -> None:
    first = make_corpus(tmp_path / "here", [0.2, 0.3])
    written = write_manifest(tmp_path / "here/lists/all.jsonl", Manifest.read(first))
    ids = [u.id for u in Manifest.read(written)]
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = Manifest.read(tmp_path / "there/lists/all.jsonl")
    assert [u.id for u in moved] == ids
    for utterance in moved:
        assert soundfile.info(utterance.audio_filepath).duration == pytest.approx(utterance.duration, abs=1e-4)


@given(data=st.data(), size=st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_selecting_twice_is_selecting_once(corpus: Path, data: st.DataObject, size: int) -> None:
    manifest = Manifest.read(corpus)
    first = data.draw(st.lists(st.integers(0, len(manifest) - 1), min_size=size, max_size=size))
    second = data.draw(st.lists(st.integers(0, size - 1), max_size=8))
    chosen = manifest.select(first).select(second)
    expected = [first[index] for index in second]
    assert list(chosen) == [manifest[index] for index in expected]
    assert [chosen.row(index) for index in range(len(chosen))] == [index + 1 for index in expected]
    np.testing.assert_array_equal(chosen.durations, manifest.durations[np.array(expected, dtype=int)])


def test_indices_outside_are_refused(corpus: Path) -> None:
    manifest = Manifest.read(corpus)
    for index in (len(manifest), -len(manifest) - 1):
        with pytest.raises(IndexError):
            manifest[index]
        with pytest.raises(IndexError):
            manifest.select([0, index])


def private_megabytes() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("Private_Dirty:"))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's account of shared pages")
def test_a_forked_worker_reads_all_rows_without_copying_them(tmp_path: Path) -> None:
    row = {"duration": 1.0, "text": "x" * 20_000}
    rows = [{"audio_filepath": f"{number}.wav", **row} for number in range(3000)]
    manifest = Manifest.read(write_rows(tmp_path / "m.jsonl", rows))
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def read_all() -> None:
        gc.freeze()
        before = private_megabytes()
        read = sum(len(manifest[index].text) for index in range(len(manifest)))
        sender.send((read, private_megabytes() - before))

    worker = context.Process(target=read_all)
    worker.start()
    read, copied = receiver.recv()
    worker.join()
    assert read == 60_000_000
    assert copied < 15
