"""What the addresses of a server share: the models by name, and the way of an upload to its transcripts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from sonosco_like.errors import did_you_mean, list_some
from sonosco_like.server.children import ChildLostError, Message
from sonosco_like.server.limits import Access, Limits, RefusedError
from sonosco_like.server.metrics import Metrics
from sonosco_like.server.workers import Helpers, Recognisers


@dataclass
class Service:
    """A running server, seen from its addresses: models by name, uploads heard, decoded and saved."""

    recognisers: Recognisers
    decoders: Helpers
    limits: Limits
    access: Access
    metrics: Metrics
    collector: Helpers | None = None
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
        decoded = await self.decode(content, different)
        by_rate = dict(zip(different, decoded.parts, strict=True))
        heard = await asyncio.gather(
            *(self.recognisers.transcribe(name, by_rate[rates[name]], n_best, form) for name in names)
        )
        for name, each in zip(names, heard, strict=True):
            self.metrics.audio.labels(name).inc(each["duration"])
        return heard

    async def decode(self, content: bytes, rates: list[int]) -> Message:
        """The waveform of an upload as float32 at each of the sample rates, 0 for its own, which the header tells."""
        try:
            answer = await self.decoders.ask(Message({"rates": rates}, [content]), self.limits.decoding)
        except ChildLostError as error:
            reason = f"takes longer than {self.limits.decoding:g} s" if error.too_slow else "ends the decoder"
            raise RefusedError(422, "unreadable_audio", f"This upload cannot be decoded: it {reason}.") from None
        if "error" in answer.header:
            is_long = answer.header["kind"] == "too_long"
            status, code = (413, "audio_too_long") if is_long else (422, "unreadable_audio")
            raise RefusedError(status, code, answer.header["error"])
        return answer

    async def save(self, content: bytes, text: str) -> dict[str, Any]:
        """Save an upload with its true text."""
        assert self.collector is not None
        decoded = await self.decode(content, [0])
        question = Message({"rate": decoded.header["rate"], "text": text}, decoded.parts)
        try:
            answer = (await self.collector.ask(question, self.limits.timeout)).header
        except ChildLostError:
            raise RefusedError(503, "not_saved", "The correction was not saved. Try again.") from None
        if "error" in answer:
            is_wrong = answer["kind"] == "refused"
            raise RefusedError(422 if is_wrong else 500, "invalid_field" if is_wrong else "not_saved", answer["error"])
        return answer
