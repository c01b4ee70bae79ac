"""The application: its addresses and their answers."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from sonosco_like.edits import character_diff, count_character_errors, count_word_errors, word_diff
from sonosco_like.errors import as_sentence
from sonosco_like.server import answers
from sonosco_like.server.limits import App, Guard, RefusedError
from sonosco_like.server.metrics import CONTENT_TYPE
from sonosco_like.server.pages import add_pages
from sonosco_like.server.service import Service
from sonosco_like.server.stream import add_stream
from sonosco_like.version import __version__

_MOST_HYPOTHESES = 20
_MOST_MODELS = 16
_DESCRIPTIONS = {
    400: "The request makes no sense", 401: "The token is missing or wrong", 403: "Another site's page asks",
    404: "There is no such model", 408: "It took too long", 413: "Too many bytes or seconds",
    422: "A field is missing or wrong, or the upload is no audio", 429: "Too many requests at a time",
    500: "The model failed", 503: "Not now",
}  # fmt: skip
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.ErrorAnswer, "description": text} for status, text in _DESCRIPTIONS.items()
}
logger = logging.getLogger(__name__)


def make_app(service: Service) -> App:
    """The application with all its addresses, behind its guard."""
    app = FastAPI(
        title="sonosco serve", version=__version__, docs_url=None, redoc_url=None,
        description="Transcribes recordings with trained recognisers.",
    )  # fmt: skip
    _handle_errors(app)
    _add_information(app, service)
    _add_transcription(app, service)
    _add_comparison(app)
    if service.collector is not None:
        _add_collection(app, service)
    add_stream(app, service)
    add_pages(app)
    paths = frozenset(getattr(route, "path", "") for route in app.routes)
    return Guard(app, service.limits, service.access, service.metrics, paths)


def _handle_errors(app: FastAPI) -> None:
    def refuse(request: Request, error: Any) -> JSONResponse:
        return JSONResponse(error.content, error.status, error.headers)

    def invalid(request: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return refuse(request, RefusedError(422, "invalid_field", f"{place}: {first['msg']}."))

    def http(request: Request, error: Any) -> JSONResponse:
        refused = RefusedError(error.status_code, "bad_request", as_sentence(error.detail))
        return JSONResponse(refused.content, error.status_code, {**refused.headers, **(error.headers or {})})

    def unexpected(request: Request, error: Any) -> JSONResponse:
        logger.error("This should not have happened.", exc_info=error)
        return refuse(request, RefusedError(500, "internal", "This should not have happened. The log has more."))

    app.add_exception_handler(RefusedError, refuse)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unexpected)


def _add_information(app: FastAPI, service: Service) -> None:
    errors: dict[int | str, dict[str, Any]] = {status: _ERRORS[status] for status in (401, 403)}

    @app.get("/v1/models", responses=errors)
    def models() -> answers.Models:
        """The models of this server; the first one is the default."""
        entries = [
            answers.ModelEntry(id=name, created=int(service.started), **about)
            for name, about in service.recognisers.models.items()
        ]
        return answers.Models(data=entries)

    @app.get("/healthz", responses={403: _ERRORS[403], 503: {"model": answers.Health}})
    def health() -> Response:
        """Whether requests can be answered: 503 while no process has its models ready."""
        ready = len(service.recognisers.pids)
        content = answers.Health(
            status="ok" if ready else "starting", recognisers=ready, models=list(service.recognisers.models),
            max_seconds=service.limits.max_seconds, collecting=service.collector is not None,
        )  # fmt: skip
        return JSONResponse(content.model_dump(), 200 if ready else 503)

    @app.get("/metrics", responses=errors, response_class=PlainTextResponse)
    def metrics() -> Response:
        """Counters in the text format of Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _add_transcription(app: FastAPI, service: Service) -> None:
    @app.post("/v1/transcribe", responses={**_ERRORS, 200: {"model": answers.Results}}, response_model=None)
    async def transcribe(
        file: Annotated[UploadFile, File(description="WAV, FLAC, MP3, OGG, Opus, WebM or MP4")],
        model: Annotated[
            list[str] | None, Form(max_length=_MOST_MODELS, description="may be repeated; the first model if not given")
        ] = None,
        n_best: Annotated[
            int, Form(ge=0, le=_MOST_HYPOTHESES, description="how many hypotheses of each segment to send too")
        ] = 0,
    ) -> Response:
        """The results of one or several models: text, words with times and confidences, segments, n best hypotheses."""
        names = service.names(model)
        results = await service.hear(names, await file.read(), n_best)
        return JSONResponse({"results": [{"model": name, **each} for name, each in zip(names, results, strict=True)]})

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
        (result,) = await service.hear(service.names([model]), await file.read(), form=form)
        answer = answers.openai_answer(result, response_format, language, "word" in (timestamp_granularities or []))
        return PlainTextResponse(answer) if isinstance(answer, str) else JSONResponse(answer)


def _add_comparison(app: FastAPI) -> None:
    @app.post("/v1/compare", responses=_ERRORS)
    def compare(given: answers.Comparable) -> answers.Comparison:
        """Hypotheses aligned with a reference, word by word and character by character, with their error rates."""
        return answers.Comparison(pairs=[_pair(given.reference, text) for text in given.hypotheses])


def _pair(reference: str, hypothesis: str) -> answers.Pair:
    return answers.Pair(
        words=word_diff(reference, hypothesis), characters=character_diff(reference, hypothesis),
        wer=count_word_errors([reference], [hypothesis]).rate,
        cer=count_character_errors([reference], [hypothesis]).rate,
    )  # fmt: skip


def _add_collection(app: FastAPI, service: Service) -> None:
    @app.post("/v1/corrections", responses=_ERRORS)
    async def correct(
        file: Annotated[UploadFile, File(description="the recording")],
        text: Annotated[str, Form(max_length=answers.LONGEST_TEXT, description="what was said")],
    ) -> answers.Saved:
        """Save a recording with its true text as a row of the manifest; the same recording again changes its text."""
        return answers.Saved(**await service.save(await file.read(), text))
