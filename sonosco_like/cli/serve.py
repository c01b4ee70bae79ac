"""`sonosco serve`: transcription over HTTP, and a web page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sonosco_like.cli.options import PATH, decoder_options, import_modules, imports
from sonosco_like.errors import MissingPackageError, UsageError
from sonosco_like.untrusted_files import read_limited

_SHORTEST_TOKEN = 16
_MODELS_OF_RUNS = ("final", "best", "latest", "inference")


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="[NAME=]RUN_OR_CHECKPOINT_OR_EXPORT ...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="0 takes a free one.")
@click.option("--token-file", type=PATH, help="A file with the token that clients must give.")
@click.option("--no-token", is_flag=True, help="Let everybody in who can reach a host other than this machine.")
@click.option(
    "--collect",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Save corrected transcripts there, as rows of corrections.jsonl.",
)
@click.option(
    "--max-seconds", type=click.FloatRange(1), default=120, show_default=True, help="The longest recording, in seconds."
)
@click.option(
    "--max-megabytes", type=click.FloatRange(0.001), default=32, show_default=True, help="The largest request."
)
@click.option(
    "--max-requests", type=click.IntRange(1), default=128, show_default=True, help="Requests worked on at a time."
)
@click.option(
    "--timeout", type=click.FloatRange(1), default=60, show_default=True, help="The longest time for a request."
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that hold the models.")
@click.option("--longest", type=click.FloatRange(1), help="As for `sonosco transcribe`.")
@decoder_options
@click.option("--device", help="Such as cpu or cuda:0; the GPU, if there is one, if not given.")
@imports
def serve(
    models: tuple[str, ...],
    host: str,
    port: int,
    token_file: Path | None,
    no_token: bool,
    collect: Path | None,
    max_seconds: float,
    max_megabytes: float,
    max_requests: int,
    timeout: float,
    workers: int,
    longest: float | None,
    device: str | None,
    modules: tuple[str, ...],
    **options: Any,
) -> int:
    """Serve recognisers over HTTP, with a web page.

    Each model is a run folder, a checkpoint, a folder of `sonosco export`, or a graph in such a folder, as those of 8
    bits; its name is that of the folder, or NAME.
    Clients send recordings to /v1/transcribe, or as to OpenAI's API to /v1/audio/transcriptions. The address / is a
    page to speak to the models, /docs lists all addresses. A server that other machines can reach needs a token. Ctrl-C
    or SIGTERM finishes the requests that were taken; the exit code is then 0.

    \b
    Examples:
      sonosco serve runs/digits
      sonosco serve small=runs/las large=runs/conformer --port 8000
      sonosco serve runs/las las-onnx las-onnx/model.int8.onnx
      sonosco serve runs/las --host 0.0.0.0 --token-file token.txt
      sonosco serve runs/las --collect corrections
    """
    try:
        from sonosco_like.server.limits import Limits, is_loopback
        from sonosco_like.server.running import Settings
        from sonosco_like.server.running import serve as run_server
    except ImportError as error:
        raise MissingPackageError(
            f"The server needs the package {error.name}. Install it with: pip install 'sonosco_like[serve]'"
        ) from None
    if not is_loopback(host) and token_file is None and not no_token:
        raise UsageError(
            f"Other machines can reach {host}: give a token with --token-file, or let everybody in with --no-token."
        )
    import_modules(modules)  # a mistake in them is reported here; the processes with the models import them again
    settings = Settings(
        models=named_models(models), host=host, port=port, token=None if token_file is None else read_token(token_file),
        workers=workers, limits=Limits(round(max_megabytes * 1e6), max_seconds, max_requests, timeout), modules=modules,
        collect=collect, device=device, longest=longest, decoder_options=options,
    )  # fmt: skip
    run_server(settings, lambda line: click.echo(line))
    return 0


def named_models(arguments: tuple[str, ...]) -> dict[str, Path]:
    """The models by name; a name that is not given is that of the folder."""
    found: dict[str, Path] = {}
    for argument in arguments:
        name, mark, path = argument.partition("=")
        if not mark or "/" in name:
            path, name = argument, _name_of(Path(argument))
        if not name or not path:
            raise UsageError(f"{argument!r} is no model: give a run folder or an export, or NAME=RUN.")
        if name in found:
            raise UsageError(f"Two models would have the name {name!r}: give them names, as in NAME={path}.")
        found[name] = Path(path)
    return found


def _name_of(path: Path) -> str:
    """The name of a run, or of the folder of a graph; of a checkpoint in it, with the name of its run before it."""
    if path.suffix in (".onnx", ".pt2"):
        return _name_of(path.parent) + ("-int8" if ".int8." in path.name else "")
    parts = [part for part in path.resolve().parts if part != "checkpoints"]
    is_inside = len(parts) > 1 and (parts[-1] in _MODELS_OF_RUNS or parts[-1].startswith("step-"))
    return "-".join(parts[-2:] if is_inside else parts[-1:])


def read_token(path: Path) -> str:
    """The token in a file."""
    try:
        token = read_limited(path, 4096).decode("ascii").strip()
    except OSError as error:
        raise UsageError(f"The token file {path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"The token in {path} may only have ASCII characters.") from None
    if len(token) < _SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise UsageError(
            f"The token in {path} must be one word of at least {_SHORTEST_TOKEN} characters. "
            f"Make one with: openssl rand -hex 24 > {path}"
        )
    return token
