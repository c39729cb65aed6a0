"""Bodies of bulks, which schemathesis cannot write by itself."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def bulk(context, value):
    """Sends a text as it is, and anything else as a line."""
    return (value if isinstance(value, str) else json.dumps(value) + "\n").encode("utf-8", "surrogateescape")
