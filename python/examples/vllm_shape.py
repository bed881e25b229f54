"""The shape of a worker around vLLM's AsyncLLM: the names and calls are vLLM's own (v1 engine), but this file has been
run against a stand-in with the same signatures only (tests/test_worker.py), not against vLLM.

vLLM answers each request with an async generator of RequestOutput, whose texts are deltas when
SamplingParams.output_kind is DELTA. Leaving the generator aborts the request in the engine.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import laneway


def handler(engine: Any, sampling_params: type[Any], delta_kind: Any) -> Any:
    """An engine for laneway.serve. engine is an AsyncLLM, sampling_params vllm.SamplingParams and delta_kind
    vllm.sampling_params.RequestOutputKind.DELTA."""

    async def run(request: laneway.Request) -> AsyncIterator[bytes]:
        body = request.json()
        params = sampling_params(
            max_tokens=body.get("max_tokens", 16), temperature=body.get("temperature", 1.0), output_kind=delta_kind
        )
        outputs = engine.generate(body["prompt"], params, request.id)
        try:
            async for output in outputs:
                for choice in output.outputs:
                    part = {"index": choice.index, "text": choice.text, "finish_reason": choice.finish_reason}
                    event = {"id": request.id, "object": "text_completion", "model": request.model, "choices": [part]}
                    yield b"data: " + json.dumps(event).encode()
        finally:
            await outputs.aclose()  # aborts what is not finished
        yield b"data: [DONE]"

    return run
