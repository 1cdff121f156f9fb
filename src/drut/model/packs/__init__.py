"""The pack cache: packed weights on disk, so that a model is packed once and mapped from then on."""

from drut.model.packs.cache import PackCache
from drut.model.packs.load import load_through

__all__ = ["PackCache", "load_through"]
