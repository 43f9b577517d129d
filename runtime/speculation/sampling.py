"""How a request samples. The laws themselves are `kernels.accept.laws`."""

from dataclasses import dataclass

from runtime.errors import RequestError, SamplingError


@dataclass(frozen=True)
class SamplingParams:
    """How a request samples. `top_k` 0 and `top_p` 1 switch their cut off; `seed` keys all noise of the request."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise RequestError(f"temperature is {self.temperature}; it is a finite number from 0 up")
        if self.top_k < 0:
            raise RequestError(f"top_k is {self.top_k}; it is 0 (off) or a positive count")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p is {self.top_p}; it lies in (0, 1]")
        if not 0 <= self.min_p <= 1:
            raise RequestError(f"min_p is {self.min_p}; it lies in [0, 1]")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def bad_logits() -> SamplingError:
    return SamplingError(
        "the target's logits hold NaN or no finite value, so no token can be drawn; the request ends here"
    )
