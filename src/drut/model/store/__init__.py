"""Finds and fetches a model's files by a known name, a repository of the Hugging Face hub, or a path."""

from drut.model.store.catalogue import CatalogueEntry, entries
from drut.model.store.digest import model_digest
from drut.model.store.locate import entry_of, find, near_model, pull, resolve
from drut.model.store.progress import DownloadProgress, show, silent

__all__ = ["CatalogueEntry", "DownloadProgress", "entries", "entry_of", "find", "model_digest", "near_model", "pull",
           "resolve", "show", "silent"]
