"""Where a secret is found."""

from typing import Self

from pydantic import BaseModel, Field, model_validator

from fleet.policy import STRICT
from fleet.refusal import refusal


class SecretRef(BaseModel):
    """Where a secret is found: an environment variable of the worker, or a file on its disk.

    The secret itself never stands in the fleet file, so it never enters a workflow.
    """

    model_config = STRICT

    env: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="the name of a variable",
        examples=["STEADY_TOKEN"],
    )
    file: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise refusal(
                "a secret has one place", 'write { env = "VARIABLE" } or { file = "PATH" }'
            )
        return self
