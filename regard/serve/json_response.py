"""JSON of answers: msgspec encodes their types; NaN and infinities become null."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

encode_json = msgspec.json.Encoder().encode


def json_response(content: object) -> Response:
    return Response(encode_json(content), media_type="application/json")
