"""The pages for people: the one to speak and compare, and the list of addresses. Nothing comes from other hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response

from sonosco_like.html_page import render_page
from sonosco_like.server.limits import SECURITY_HEADERS, RefusedError

_FOLDERS = (Path(__file__).parent / "static", Path(__file__).parents[1] / "static")  # ours, and those that rooms share
_TYPES = {".js": "text/javascript", ".css": "text/css"}
_OWN_STYLE = SECURITY_HEADERS["Content-Security-Policy"].replace("style-src 'self'", "style-src 'unsafe-inline'")


def add_pages(app: FastAPI) -> None:
    """Add the pages to an application."""
    files = {file.name: file.read_bytes() for folder in _FOLDERS for file in folder.iterdir()}

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return HTMLResponse(files["index.html"])

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        kind = _TYPES.get(Path(name).suffix)
        if name not in files or kind is None:
            raise RefusedError(404, "not_found", "There is no such file.")
        return Response(files[name], media_type=kind)

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(_list_of_addresses(app.openapi()), headers={"Content-Security-Policy": _OWN_STYLE})


def _list_of_addresses(document: dict[str, Any]) -> str:
    operations = [
        (address, method, _operation(document, operation))
        for address, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    about = document["info"]
    return render_page("api.html", title=about["title"], description=about["description"], operations=operations)


def _operation(document: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    fields = []
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        required = schema.get("required", ())
        fields += [
            {"name": name, "required": name in required, "about": each.get("description", "")}
            for name, each in schema["properties"].items()
        ]
    answers = [(status, each["description"]) for status, each in operation["responses"].items()]
    return {"description": operation.get("description", ""), "fields": fields, "answers": answers}
