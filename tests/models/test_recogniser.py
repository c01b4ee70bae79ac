"""Models from YAML, in any combination, and what is refused."""

from __future__ import annotations

import hashlib

import pytest
import torch

from sonosco_like.errors import ConfigError, UsageError
from sonosco_like.models import LAS, TDS, Attention, ConformerEncoder, DeepSpeech2, Listener, Recogniser
from sonosco_like.models import SpectrogramConvolution as Convolution
from sonosco_like.serialization import dumps, load, loads, save


def test_a_config_may_leave_out_what_the_paper_says():
    model = loads("{class: LAS, vocabulary_size: 30, features: 40, encoder: {hidden_size: 16, layers: 2}}")
    assert isinstance(model, LAS)
    assert model.frame_reduction == 4
    assert model.attention_decoder.hidden_size == 512
    assert not model.has_ctc


def test_any_encoder_goes_with_any_decoder():
    text = """
    class: Recogniser
    vocabulary_size: 30
    features: 16
    encoder: {class: ConformerEncoder, size: 16, layers: 1, channels: 4}
    decoder: {class: Speller, hidden_size: 16, embedding_size: 8, attention: {kind: location, size: 16}}
    """
    model = loads(text)
    assert isinstance(model, Recogniser)
    assert model.has_ctc
    assert model.attention_decoder.attention.kind == "location"


def test_a_plain_listener_keeps_every_frame():
    listener = Listener(hidden_size=8, layers=2, pyramid=False)
    listener.build(4)
    assert listener.frame_reduction == 1
    assert len(listener.recurrent) == 3


def test_weights_are_drawn_from_the_range_of_the_paper():
    model = LAS(vocabulary_size=9, features=4, encoder=Listener(hidden_size=8, layers=1), initial_range=0.1)
    assert all(0 < parameter.abs().max() <= 0.1 for parameter in model.parameters())


def test_a_model_without_output_is_refused():
    with pytest.raises(UsageError, match="ctc: true"):
        DeepSpeech2(vocabulary_size=30, features=16, ctc=False)


def test_ctc_logits_of_a_model_without_ctc_are_refused_with_the_remedy(make_model):
    with pytest.raises(UsageError, match="ctc: true"):
        make_model("las-dot").ctc_logits(None)


@pytest.mark.parametrize("fields", [{"vocabulary_size": 4, "features": 40}, {"vocabulary_size": 9, "features": -1}])
def test_impossible_sizes_are_refused(fields):
    with pytest.raises(UsageError, match="got"):
        TDS(**fields)


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="heads"):
        Attention(size=10, heads=3)
    with pytest.raises(UsageError, match="odd"):
        Attention(kind="location", location_kernel=10)
    with pytest.raises(UsageError, match="odd"):
        Convolution(time_kernel=4)
    with pytest.raises(UsageError, match="heads"):
        ConformerEncoder(size=10, heads=4)
    with pytest.raises(UsageError, match="at least 1"):
        Listener(stack=0)


def test_a_wrong_value_in_a_file_names_its_place():
    with pytest.raises(ConfigError, match=r"encoder.*odd"):
        loads("{class: Conformer, vocabulary_size: 30, features: 40, encoder: {kernel: 4}}")


OLD = "{class: TDS, vocabulary_size: 9, features: 8, ctc: true, decoder: {class: KeyValueDecoder, size: 4}}"


def test_decoder_of_older_files_and_programs_is_the_attention_decoder():
    read = loads(OLD)
    assert read.attention_decoder.size == 4
    assert read.attention_decoder is read.decoder
    assert "attention_decoder:" in dumps(read, state=False)
    assert TDS(vocabulary_size=9, features=8, ctc=True, decoder=None).attention_decoder is None
    assert {name.partition(".")[0] for name in read.state_dict()} == {"encoder", "decoder", "ctc_output"}


def test_both_names_of_the_attention_decoder_are_a_mistake():
    with pytest.raises(ConfigError, match="TDS has no field 'decoder'"):
        loads(OLD[:-1] + ", attention_decoder: {class: KeyValueDecoder, size: 4}}")


def test_a_folder_with_the_older_name_in_its_paths_gives_back_weights_and_state(tmp_path):
    model = loads(OLD)
    model.attention_decoder.soft_window = False
    save(model, tmp_path / "saved")
    graph = (tmp_path / "saved" / "trainer.yaml").read_text()
    text = (tmp_path / "saved" / "state.yaml").read_text().replace("attention_decoder", "decoder")
    older = graph.replace("attention_decoder:", "decoder:").replace("class: TDS@2", "class: TDS")
    assert older != graph
    text = text.replace(hashlib.sha256(graph.encode()).hexdigest(), hashlib.sha256(older.encode()).hexdigest())
    body = text.rpartition("sha256: ")[0]
    (tmp_path / "saved" / "trainer.yaml").write_text(older)
    (tmp_path / "saved" / "state.yaml").write_text(f"{body}sha256: {hashlib.sha256(body.encode()).hexdigest()}\n")
    back = load(tmp_path / "saved")
    assert back.attention_decoder.soft_window is False
    ours, theirs = back.state_dict(), model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
