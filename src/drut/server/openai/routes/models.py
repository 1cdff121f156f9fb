"""`GET /v1/models` and `/v1/models/{id}`."""

from __future__ import annotations

import msgspec

from drut.engine.request.params import MODEL_FIELDS, NEUTRAL
from drut.server.http.exchange import HttpExchange
from drut.server.openai.protocol.models import ModelCard, ModelList, SamplingDefaults
from drut.server.service import Service


async def list_models(exchange: HttpExchange, service: Service, caller: str) -> None:
    await exchange.reply(200, msgspec.json.encode(ModelList(data=_cards(service))))


async def show_model(exchange: HttpExchange, service: Service, caller: str) -> None:
    name = exchange.scope["path_params"]["name"]
    service.check_model(name)
    cards = {card.id: card for card in _cards(service)}
    await exchange.reply(200, msgspec.json.encode(cards.get(name, cards[service.name])))


def _cards(service: Service) -> list[ModelCard]:
    loaded = service.model()
    filled = NEUTRAL.filled(loaded.texts.sampling)
    defaults = SamplingDefaults(**{name: getattr(filled, name) for name in MODEL_FIELDS})
    return [ModelCard(id=name, created=loaded.created, max_model_len=loaded.texts.room, sampling_defaults=defaults)
            for name in service.names if name != "*"]
