"""What is done so that activations fit into the workers' memories."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ampsim.hardware.record import BYTES_MAX
from ampsim.toml_file import Record


class MemoryRemedy(Record):
    """What is done so that activations fit into the workers' memories.

    Args:
        remedy: "offload" moves the activations of heavy nodes to the host and back over the lanes
            of their device; "recompute" lets heavy nodes keep their inputs alone, and compute the
            rest again.
        above_bytes: an activation is moved only where more than this lies in its device's memory.
    """

    remedy: Literal["offload", "recompute"]
    above_bytes: Annotated[int, Field(ge=0, le=BYTES_MAX)] = 0

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        """No key is without effect."""
        if self.above_bytes and self.remedy != "offload":
            text = f"above_bytes has no effect on remedy {self.remedy!r}; leave it out"
            raise PydanticCustomError("memory", "{text}", {"text": text})
        return self
