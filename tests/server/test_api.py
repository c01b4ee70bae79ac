"""The addresses of a real server, asked as programs ask."""

from __future__ import annotations

import contextlib
import io
import json

import av
import numpy as np
import openai
import pytest
import schemathesis
import soundfile
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import positive_data_acceptance

from sonosco_like import load_transcriber
from sonosco_like.edits import count_errors

PATIENCE = 120  # seconds


@pytest.fixture(scope="module")
def sample(digits):
    return digits.audio(digits.rows()[0])


@pytest.fixture(scope="module")
def expected(digits, other, sample):
    """What `sonosco transcribe --json` prints for the sample, by model."""
    return {name: load_transcriber(run)(sample).as_dict() for name, run in (("digits", digits.run), ("other", other))}


def test_each_model_hears_what_the_command_line_hears(server, sample, expected):
    answer = server.transcribe(sample, model=["digits", "other"])
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [each["model"] for each in results] == ["digits", "other"]
    for each in results:
        wanted = expected[each["model"]]
        assert {name: each[name] for name in wanted if name != "audio"} == {
            name: value for name, value in wanted.items() if name != "audio"
        }
    assert results[0]["text"] != results[1]["text"]


def test_without_a_name_the_first_model_answers(server, sample, expected):
    (result,) = server.transcribe(sample).json()["results"]
    assert (result["model"], result["text"]) == ("digits", expected["digits"]["text"])


def test_n_best_hypotheses_come_in_their_order(server, sample, expected):
    (result,) = server.transcribe(sample, n_best=5).json()["results"]
    (segment,) = result["segments"]
    scores = [each["score"] for each in segment["hypotheses"]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    (plain,) = server.transcribe(sample).json()["results"]
    assert plain["text"] == expected["digits"]["text"], "the search of one request changes no other"
    assert "hypotheses" not in plain["segments"][0]


def as_browser_records(samples, rate, container, codec):
    """Bytes as MediaRecorder makes them."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream = output.add_stream(codec, rate=48000, layout="mono")
        resampler = av.AudioResampler(format="fltp" if codec != "libopus" else "flt", layout="mono", rate=48000)
        frame = av.AudioFrame.from_ndarray(samples[None].astype(np.float32), format="fltp", layout="mono")
        frame.sample_rate = rate
        for each in [*resampler.resample(frame), *resampler.resample(None)]:
            for packet in stream.encode(each):
                output.mux(packet)
        for packet in stream.encode(None):
            output.mux(packet)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["wav", "flac", "mp3", "ogg", "opus in ogg", "webm", "mp4", "stereo", "44100 Hz"])
def test_every_form_of_audio_is_heard(server, sample, expected, form):
    samples, rate = soundfile.read(sample, dtype="float32")
    buffer = io.BytesIO()
    if form == "webm":
        buffer.write(as_browser_records(samples, rate, "webm", "libopus"))
    elif form == "mp4":
        buffer.write(as_browser_records(samples, rate, "mp4", "aac"))
    elif form == "stereo":
        soundfile.write(buffer, np.stack([samples, samples], 1), rate, format="WAV", subtype="FLOAT")
    elif form == "44100 Hz":
        import soxr

        soundfile.write(buffer, soxr.resample(samples, rate, 44100), 44100, format="WAV")
    elif form == "opus in ogg":
        soundfile.write(buffer, samples, rate, format="OGG", subtype="OPUS")
    else:
        soundfile.write(buffer, samples, rate, format=form.upper())
    (result,) = server.transcribe(buffer.getvalue()).json()["results"]
    assert result["duration"] == pytest.approx(len(samples) / rate, abs=0.1)
    changed = count_errors(expected["digits"]["text"], result["text"])
    assert changed.rate < 0.5, "a lossy form changes some characters, not most"


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none needed", max_retries=0) as client:
        yield client


def test_the_openai_client_works_unchanged(client, sample, expected):
    wanted = expected["digits"]
    assert client.audio.transcriptions.create(model="digits", file=sample).text == wanted["text"]
    text = client.audio.transcriptions.create(model="digits", file=sample, response_format="text")
    assert text.strip() == wanted["text"]
    verbose = client.audio.transcriptions.create(
        model="digits", file=sample, response_format="verbose_json", timestamp_granularities=["word", "segment"],
        language="en", prompt="digits", temperature=0.2,
    )  # fmt: skip
    assert verbose.duration == wanted["duration"]
    assert [each.word for each in verbose.words] == [each["word"] for each in wanted["words"]]
    assert [each.text for each in verbose.segments] == [each["text"] for each in wanted["segments"]]
    assert -10 < verbose.segments[0].avg_logprob < 0
    srt = client.audio.transcriptions.create(model="digits", file=sample, response_format="srt")
    assert srt.startswith("1\n00:00:0")
    vtt = client.audio.transcriptions.create(model="digits", file=sample, response_format="vtt")
    assert vtt.startswith("WEBVTT\n")
    assert [each.id for each in client.models.list()] == ["digits", "other"]
    assert client.models.list().data[0].object == "model"


def test_the_openai_client_understands_what_is_refused(client, sample):
    with pytest.raises(openai.NotFoundError, match="did you mean 'digits'"):
        client.audio.transcriptions.create(model="digit", file=sample)
    with pytest.raises(openai.UnprocessableEntityError, match="cannot be read as audio"):
        client.audio.transcriptions.create(model="digits", file=b"no audio at all")
    with pytest.raises(openai.BadRequestError, match="leave out `stream`"):
        client.audio.transcriptions.create(model="digits", file=sample, stream=True)


def test_health_models_and_metrics(server, digits):
    with server.client() as asking:
        health = asking.get("/healthz").json()
        assert (health["status"], health["recognisers"], health["models"]) == ("ok", 1, ["digits", "other"])
        about = asking.get("/v1/models").json()["data"]
        before = server.metric("sonosco_audio_seconds_total")
        row = digits.rows()[1]
        server.transcribe(digits.audio(row))
        assert server.metric("sonosco_audio_seconds_total") - before == pytest.approx(row["duration"], abs=0.01)
    assert [(each["id"], each["sample_rate"]) for each in about] == [("digits", 16000), ("other", 8000)]
    parameters = sum(each.numel() for each in load_transcriber(digits.run).recogniser.model.parameters())
    assert about[0]["parameters"] == parameters


def test_the_answers_of_errors_have_one_form(server, sample):
    with server.client() as asking:
        found = [
            asking.post("/v1/transcribe"),
            asking.post("/v1/transcribe", files={"file": b""}),
            asking.post("/v1/transcribe", files={"file": sample.read_bytes()}, data={"n_best": "many"}),
            asking.post("/v1/transcribe", files={"file": sample.read_bytes()}, data={"model": "none"}),
            asking.post("/v1/transcribe", content=b"{", headers={"Content-Type": "application/json"}),
            asking.get("/nothing"),
            asking.get("/v1/transcribe"),
        ]
    assert [each.status_code for each in found] == [422, 422, 422, 404, 422, 404, 405]
    for each in found:
        error = each.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"].endswith(".")
        assert "Traceback" not in json.dumps(error)


def test_the_document_of_the_api_is_kept(server):
    """Schemathesis makes requests from the document, right and wrong ones, and compares the answers with it.

    That a right request is accepted is not among its checks: its uploads are random bytes, not audio.
    """
    tried = []
    for found in schemathesis.openapi.from_url(f"{server.address}/openapi.json").get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:

            @settings(max_examples=12, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case):
                case.call_and_validate(timeout=PATIENCE, excluded_checks=[positive_data_acceptance])
                tried.append(case.path)

            with contextlib.suppress(Unsatisfiable):  # there is no wrong request to an address without parameters
                check()
    assert len(set(tried)) >= 5
    assert tried.count("/v1/transcribe") >= 12
