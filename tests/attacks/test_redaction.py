"""A password in a URL or a setting is in no file that is shown, sent or shared, and in no message."""

from __future__ import annotations

import logging
import stat
import sys
from pathlib import Path

import pytest
import yaml
from tiny import tiny_config

from sonosco_like.cli import run
from sonosco_like.redaction import mask_arguments, mask_secrets, mask_secrets_in_urls

SECRET = "".join(("hunter2", "secret"))  # so that the copy of this very file does not hold it
IMPORT = ["--import", "tiny"]
CALLBACKS = """
  callbacks:
  - {class: LogMeasures, every: 1ba}
  - {class: MetricsFile}
  - {class: TensorBoardCallback}
  - {class: RunReport}
  - {class: BenchmarkLog, monitor: val_loss}
  - {class: WandbDestination}
  - {class: ModelCheckpoint, every: 3ba, keep_last: 1}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"s3://me:{SECRET}@host/runs", "s3://me:***@host/runs"),
        (f"see http://me:{SECRET}@host:5000/x and more", "see http://me:***@host:5000/x and more"),
        (f"redis://:{SECRET}@host", "redis://:***@host"),
        (f"postgresql+psycopg2://me:{SECRET}%40x@host/db", "postgresql+psycopg2://me:***@host/db"),
        (f"sftp://me:{SECRET}/with/slash@host/x", "sftp://me:***@host/x"),
        (f"sftp://me:{SECRET}@with@host/x", "sftp://me:***@host/x"),
        (f"https://{SECRET}@host/x", "https://***@host/x"),
        (f"https://host/x?token={SECRET}&a=1", "https://host/x?token=***&a=1"),
        (f"https://host/x?a=1&api_key={SECRET}", "https://host/x?a=1&api_key=***"),
        (f"https://b.s3.amazonaws.com/x?X-Amz-Signature={SECRET}", "https://b.s3.amazonaws.com/x?X-Amz-Signature=***"),
        (f"https://a.blob.core.windows.net/x?sv=1&sig={SECRET}", "https://a.blob.core.windows.net/x?sv=1&sig=***"),
        (f"trainer.callbacks[0].password={SECRET}", "trainer.callbacks[0].password=***"),
        (f"--set=db_password={SECRET}", "--set=db_password=***"),
        (f"password: '{SECRET} with blanks'", "password: ***"),
        (f"  aws_secret_access_key: {SECRET}\n  lr: 0.1", "  aws_secret_access_key: ***\n  lr: 0.1"),
        (f'{{"api_key": "{SECRET}", "b": 1}}', '{"api_key": ***, "b": 1}'),
        (f"token: {SECRET}", "token: ***"),
        ("key AKIAIOSFODNN7EXAMPLE here", "key *** here"),
        ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer ***"),
    ],
)
def test_passwords_are_blotted_out(text, expected):
    assert mask_secrets(text) == expected
    assert mask_secrets(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "tokenizer: {class: Alphabet, characters: abc}", "unknown_token: <unk>", "max_tokens: 100", "key: value",
        "http://localhost:5000/runs", "s3://bucket/a:b", "ssh://git@host/x", "file:///data/x", "lr: 0.001",
        "The password is needed.", "trainer.model.encoder.layers=4", "password: null", "a@b.c", "12:30@noon",
        "monitor: val_word_error_rate", "secrets.token_hex(4)",
    ],
)  # fmt: skip
def test_other_texts_stay_as_they_are(text):
    assert mask_secrets(text) == text


def test_code_stays_code():
    code = f'def login(password: str, token: int = 3) -> None:\n    connect("s3://me:{SECRET}@host")\n'
    assert mask_secrets_in_urls(code) == code.replace(SECRET, "***")


def test_words_of_a_command():
    assert mask_arguments(["--set", f"remote=s3://a:{SECRET}@b", "--run-dir", "x"]) == [
        "--set", "remote=s3://a:***@b", "--run-dir", "x",
    ]  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch, restored_logging) -> Path:
    """A working directory with a config."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "tiny.yaml").write_text(tiny_config(CALLBACKS, epochs=1))
    (tmp_path / "own.py").write_text(f'URL = "s3://me:{SECRET}@host/x"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("own", None)


def files_with_it(folder: Path) -> set[str]:
    found = [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    return {path.relative_to(folder).as_posix() for path in found}


@pytest.mark.filterwarnings("ignore")  # of wandb
def test_a_password_is_in_no_file_of_a_run_but_those_it_needs(here, monkeypatch, capfd, caplog):
    arguments = [
        "train", "--config", "tiny.yaml", "--run-dir", "run", *IMPORT, "--import", "own",
        "--set", f"remote=memory://me:{SECRET}@host/x",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["sonosco", *arguments])
    assert run(arguments) == 0
    kept = files_with_it(here / "run")
    assert kept <= {"config.yaml"}, kept
    assert kept == {"config.yaml"}, "it must be there to go on"
    assert stat.S_IMODE((here / "run" / "config.yaml").stat().st_mode) == 0o600
    assert "me:***@host" in (here / "run" / "environment.yaml").read_text()
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err
    assert "The config holds a password" in caplog.text
    assert run(["resume", "run", "--set", "trainer.epochs=2", *IMPORT]) == 0


def test_a_password_of_a_callback_makes_checkpoints_private_and_is_not_said(here, capfd):
    (here / "tiny.yaml").write_text(
        tiny_config(f"  callbacks:\n  - {{class: MlflowDestination, tracking_uri: 'http://me:{SECRET}@127.0.0.1:1'}}\n")
    )
    pytest.importorskip("mlflow")
    assert run(["check", "--config", "tiny.yaml", *IMPORT]) == 2
    said = capfd.readouterr()
    assert "--allow-write http://127.0.0.1:1" in said.err
    assert SECRET not in said.out + said.err


def test_a_saved_object_with_a_password_is_private(here):
    from sonosco_like import save
    from sonosco_like.callbacks import MlflowDestination

    save(MlflowDestination(tracking_uri=f"http://me:{SECRET}@host"), here / "saved")
    save(MlflowDestination(tracking_uri="http://host"), here / "other")
    assert stat.S_IMODE((here / "saved" / "trainer.yaml").stat().st_mode) == 0o600
    assert stat.S_IMODE((here / "other" / "trainer.yaml").stat().st_mode) & 0o044


def test_a_change_on_a_resume_is_private_and_not_logged(here, caplog, capfd):
    (here / "tiny.yaml").write_text(tiny_config("  callbacks:\n  - {class: ModelCheckpoint, every: 3ba}\n", epochs=1))
    assert run(["train", "--config", "tiny.yaml", "--run-dir", "run", *IMPORT]) == 0
    setting = f"trainer.callbacks=[{{class: CsvFile, path: 'http://a:{SECRET}@b'}}]"
    run(["resume", "run", "--set", setting, "--set", "trainer.epochs=2", *IMPORT])
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err
    for path in files_with_it(here / "run"):
        assert stat.S_IMODE((here / "run" / path).stat().st_mode) == 0o600
        assert path in ("config.yaml", "changes.yaml") or path.endswith("trainer.yaml")


def test_a_failure_is_told_and_kept_without_it(here, capfd):
    (here / "tiny.yaml").write_text(tiny_config("", epochs=1))
    assert run(["train", "--config", "tiny.yaml", *IMPORT, "--set", f"remote=s3://me:{SECRET}@host/x"]) == 2
    for debug in ([], ["--debug"]):
        url = f"nosuch://me:{SECRET}@host/x"
        command = [*debug, "train", "--config", "tiny.yaml", "--run-dir", "run", *IMPORT, "--allow-write", "*"]
        assert run([*command, "--set", f"remote={url}"]) != 0
        run([*debug, "resume", url])
    said = capfd.readouterr()
    assert SECRET not in said.out + said.err
    assert "me:***@host" in said.err
    assert not files_with_it(here / "run")


def test_logs_are_masked_whoever_writes(here):
    assert run(["train", "--config", "tiny.yaml", "--run-dir", "run", *IMPORT]) == 0
    from sonosco_like.redaction import MaskingFormatter

    try:
        raise OSError(f"no http://a:{SECRET}@b")
    except OSError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "at %s", (f"s3://c:{SECRET}@d",), sys.exc_info())
    assert SECRET not in MaskingFormatter("%(message)s").format(record)
    assert yaml.safe_load((here / "run" / "environment.yaml").read_text())["command"]


def test_diff_shows_no_password(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(tiny_config(""))
    (tmp_path / "b.yaml").write_text(f"remote: ftp://me:{SECRET}@host/x\n" + tiny_config(""))
    run(["diff", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")])
    out = capsys.readouterr().out
    assert "ftp://me:***@host/x" in out
    assert SECRET not in out
