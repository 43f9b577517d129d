"""The data plane's failures that a user can act on; everything else is a bug and keeps its traceback.

RuntimeFault
├── ModelError      a checkpoint or configuration that this runtime cannot represent
├── CapacityError   a request or a cache that does not fit
├── RequestError    a request whose fields make no sense
└── SamplingError   logits from which no token can be drawn (NaN, empty support)
"""


class RuntimeFault(Exception):
    """Root of the tree; its text is one sentence that names the value and the remedy."""


class ModelError(RuntimeFault):
    pass


class CapacityError(RuntimeFault):
    pass


class RequestError(RuntimeFault):
    pass


class SamplingError(RuntimeFault):
    pass
