"""Requests that schemathesis generates from the OpenAPI document of the gateway."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# The process of the gateway is that of the tests of the thin client.
sys.path.insert(0, str(FOLDER.parents[1] / "python"))
from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: E402
from tests.gateway import Gateway  # noqa: E402

# The duration of the generated requests, in seconds.
SECONDS = os.environ.get("TXN_OPENAPI_SECONDS", "60")


class OpenApi(unittest.TestCase):
    def test_document_is_valid(self) -> None:
        gateway = Gateway()
        self.addCleanup(gateway.stop)
        document = gateway.request("GET", "/openapi.json")[2]
        self.assertEqual(document["openapi"], "3.1.0")
        OpenAPIV31SpecValidator(document).validate()

    def test_each_answer_is_as_documented(self) -> None:
        gateway = Gateway()
        self.addCleanup(gateway.stop)
        program = Path(sys.executable).with_name("schemathesis")
        command = [str(program), "run", f"{gateway.url}/openapi.json", "--max-time", SECONDS,
                   "--continue-on-failure", "--request-timeout", "30", "--warnings", "off"]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(FOLDER)}
        run = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIsNone(gateway.process.poll(), "the gateway has ended")


if __name__ == "__main__":
    unittest.main()
