"""The application: its addresses and their answers."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from sonosco_like.errors import did_you_mean, list_some
from sonosco_like.server import answers
from sonosco_like.server.limits import Access, App, Guard, Limits, RefusedError
from sonosco_like.server.metrics import CONTENT_TYPE, Metrics
from sonosco_like.server.workers import Helpers, Recognisers, decode_upload
from sonosco_like.version import __version__

_MOST_HYPOTHESES = 20
_MOST_MODELS = 16
_DESCRIPTIONS = {
    400: "The request makes no sense", 401: "The token is missing or wrong", 403: "Another site's page asks",
    404: "There is no such model", 408: "It took too long", 413: "Too many bytes or seconds",
    422: "A field is missing or wrong, or the upload is no audio", 429: "Too many requests at a time",
    500: "The model failed",
}  # fmt: skip
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.ErrorAnswer, "description": text} for status, text in _DESCRIPTIONS.items()
}
logger = logging.getLogger(__name__)


@dataclass
class Server:
    """The parts of a running server."""

    recognisers: Recognisers
    decoders: Helpers
    limits: Limits
    access: Access
    metrics: Metrics
    started: float = field(default_factory=time.time)

    def names(self, wanted: list[str] | None) -> list[str]:
        """The models with these names; the first one if none is named."""
        known = list(self.recognisers.models)
        names = list(dict.fromkeys(name for name in wanted or known[:1] if name))
        for name in names or known[:1]:
            if name not in known:
                hint = did_you_mean(name, known) or f". There are {list_some(known, 5)}."
                raise RefusedError(404, "model_not_found", f"There is no model {name[:80]!r}{hint}")
        return names or known[:1]

    async def hear(
        self, names: list[str], content: bytes, n_best: int = 0, form: str | None = None
    ) -> list[dict[str, Any]]:
        """The transcripts of an upload by each of the models."""
        rates = {name: self.recognisers.models[name]["sample_rate"] for name in names}
        different = sorted(set(rates.values()))
        decoded = await decode_upload(self.decoders, content, different, self.limits)
        by_rate = dict(zip(different, decoded, strict=True))
        heard = await asyncio.gather(
            *(self.recognisers.transcribe(name, by_rate[rates[name]], n_best, form) for name in names)
        )
        for name, each in zip(names, heard, strict=True):
            self.metrics.audio.labels(name).inc(each["duration"])
        return heard


def make_app(server: Server) -> App:
    """The application with all its addresses, behind its guard."""
    app = FastAPI(
        title="sonosco serve", version=__version__, docs_url=None, redoc_url=None,
        description="Transcribes recordings with trained recognisers.",
    )  # fmt: skip
    _handle_errors(app)
    _add_information(app, server)
    _add_transcription(app, server)
    paths = frozenset(getattr(route, "path", "") for route in app.routes)
    return Guard(app, server.limits, server.access, server.metrics, paths)


def _handle_errors(app: FastAPI) -> None:
    def refuse(request: Request, error: Any) -> JSONResponse:
        return JSONResponse(error.content, error.status, error.headers)

    def invalid(request: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return refuse(request, RefusedError(422, "invalid_field", f"{place}: {first['msg']}."))

    def http(request: Request, error: Any) -> JSONResponse:
        refused = RefusedError(error.status_code, "bad_request", f"{error.detail}.".replace("..", "."))
        return JSONResponse(refused.content, error.status_code, {**refused.headers, **(error.headers or {})})

    def unexpected(request: Request, error: Any) -> JSONResponse:
        logger.error("This should not have happened.", exc_info=error)
        return refuse(request, RefusedError(500, "internal", "This should not have happened. The log has more."))

    app.add_exception_handler(RefusedError, refuse)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)


def _add_information(app: FastAPI, server: Server) -> None:
    errors: dict[int | str, dict[str, Any]] = {status: _ERRORS[status] for status in (401, 403)}

    @app.get("/v1/models", responses=errors)
    def models() -> answers.Models:
        """The models of this server; the first one is the default."""
        entries = [
            answers.ModelEntry(id=name, created=int(server.started), **about)
            for name, about in server.recognisers.models.items()
        ]
        return answers.Models(data=entries)

    @app.get("/healthz", responses={403: _ERRORS[403], 503: {"model": answers.Health}})
    def health() -> Response:
        """Whether requests can be answered: 503 while no process has its models ready."""
        ready = len(server.recognisers.pids)
        content = answers.Health(
            status="ok" if ready else "starting", recognisers=ready, models=list(server.recognisers.models)
        )
        return JSONResponse(content.model_dump(), 200 if ready else 503)

    @app.get("/metrics", responses=errors, response_class=PlainTextResponse)
    def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(server.metrics.text(), media_type=CONTENT_TYPE)


def _add_transcription(app: FastAPI, server: Server) -> None:
    @app.post("/v1/transcribe", responses=_ERRORS, response_model_exclude_unset=True)
    async def transcribe(
        file: Annotated[UploadFile, File(description="WAV, FLAC, MP3, OGG, Opus, WebM or MP4")],
        model: Annotated[
            list[str] | None, Form(max_length=_MOST_MODELS, description="may be repeated; the first model if not given")
        ] = None,
        n_best: Annotated[
            int, Form(ge=0, le=_MOST_HYPOTHESES, description="how many hypotheses of each segment to send too")
        ] = 0,
    ) -> answers.Results:
        """What one or several models hear: text, words with times and confidences, segments, n best hypotheses."""
        names = server.names(model)
        heard = await server.hear(names, await file.read(), n_best)
        return answers.Results(
            results=[answers.Result(model=name, **each) for name, each in zip(names, heard, strict=True)]
        )

    text = {"content": {"text/plain": {"schema": {"type": "string"}}, "application/json": {}}}

    @app.post("/v1/audio/transcriptions", responses={**_ERRORS, 200: text}, response_model=None)
    async def openai_transcriptions(
        file: Annotated[UploadFile, File(description="WAV, FLAC, MP3, OGG, Opus, WebM or MP4")],
        model: Annotated[str, Form(description="one of /v1/models")],
        response_format: Annotated[answers.Form, Form()] = "json",
        language: Annotated[str, Form(max_length=20, description="only repeated in the answer")] = "",
        prompt: Annotated[str, Form(description="has no effect")] = "",
        temperature: Annotated[float, Form(description="has no effect")] = 0.0,
        timestamp_granularities: Annotated[
            list[str] | None, Form(alias="timestamp_granularities[]", description="`word` adds words to verbose_json")
        ] = None,
        stream: Annotated[bool, Form(description="must be false")] = False,
    ) -> Response:
        """As OpenAI's API: point `base_url` of its client to `/v1` of this server."""
        if stream:
            raise RefusedError(
                400, "no_stream", "Answers are not streamed here: leave out `stream`, or use /v1/stream."
            )
        form = response_format if response_format in ("srt", "vtt") else None
        (heard,) = await server.hear(server.names([model]), await file.read(), form=form)
        answer = answers.openai_answer(heard, response_format, language, "word" in (timestamp_granularities or []))
        return PlainTextResponse(answer) if isinstance(answer, str) else JSONResponse(answer)
