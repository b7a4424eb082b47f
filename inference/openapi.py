"""What the server understands, in OpenAPI's words, and the page that shows it."""

_TEXT = {"type": "string"}
DOCS_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>BERT on PaddlePaddle: API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<div id="docs"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({ url: "openapi.json", dom_id: "#docs", validatorUrl: null })</script>
</html>
"""
_PROBLEMS = {400: "Not JSON, or not UTF-8", 408: "The request did not arrive in time",
             413: "Too many bytes or records", 422: "A record that the model cannot read",
             503: "Too many texts are waiting, or no answer in time: try again"}


def describe(task):
    """The OpenAPI document of a server.

    Args:
        task: a ``Task``.
    """
    record = {"type": "object", "required": list(task.fields),
              "properties": dict.fromkeys((*task.fields, *task.optional), _TEXT)}
    records = _object(records={"type": "array", "items": record})
    answer = {"type": "object", "description": type(task).__doc__}
    answers = _object(answers={"type": "array", "items": answer})
    predict = {
        "summary": 'Answer a record, or {"records": […]}',
        "requestBody": {"required": True, "content": _json({"oneOf": [record, records]})},
        "responses": {
            "200": {"description": "Answers in order",
                    "content": _json({"oneOf": [answer, answers]})},
            **{str(status): {"description": problem, "content": _json(_object(error=_TEXT))}
               for status, problem in _PROBLEMS.items()}}}
    return {"openapi": "3.0.3", "info": {"title": "BERT on PaddlePaddle", "version": "1",
                                         "description": type(task).__doc__},
            "paths": {"/predict": {"post": predict},
                      "/health": {"get": _read("Whether answers are computed",
                                               "application/json")},
                      "/metrics": {"get": _read("Counts for Prometheus", "text/plain")}}}


def _object(**properties):
    return {"type": "object", "required": list(properties), "properties": properties}


def _json(schema):
    return {"application/json": {"schema": schema}}


def _read(meaning, media_type):
    return {"summary": meaning,
            "responses": {"200": {"description": meaning, "content": {media_type: {}}}}}
