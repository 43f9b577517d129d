"""Why a request, a pair or a startup does not count, which reasons let it count all the same, which leave no answer."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a request, pair or startup does not count. Decided before anyone looks at the arms."""

    # requests
    HTTP_ERROR = "http-error"
    ERROR_EVENT = "error-event"
    STALL = "stall"
    DISCONNECT = "disconnect"
    SERVER_DIED = "server-died"
    MALFORMED_STREAM = "malformed-stream"
    NO_CONTENT = "no-content"
    REDIRECT = "redirect"
    EMPTY_ANSWER = "empty-answer"  # one that ended without a word: an answer like any other, without a time
    USAGE_MISSING = "usage-missing"
    TOKEN_COUNT_MISMATCH = "token-count-mismatch"
    EMITTED_MISMATCH = "emitted-mismatch"
    CACHE_HIT = "cache-hit"
    PROFILED = "profiled"  # its times are those of a run under a profiler
    # flags that leave a request admissible
    CLIENT_ROUNDS_UNUSABLE = "client-rounds-unusable"
    IDS_UNAVAILABLE = "ids-unavailable"
    HASH_INCOMPLETE = "hash-incomplete"
    CAPPED = "capped"
    CLIENT_STAMPS = "client-stamps"  # the kernel did not say when the chunks arrived: the client's process did
    PROMPT_RESTORED = "prompt-restored"  # the state after its prompt was copied back, as the plan wanted: no TTFT
    # excludes where the server has no clock of its own: then no time of the request is known
    FIRST_CHUNK_COALESCED = "first-chunk-coalesced"
    COALESCED_CHUNKS = "coalesced-chunks"  # a flag; excludes likewise where most chunks arrived with another
    # pairs
    ARM_NOT_DISTINCT = "arm-not-distinct"
    BELOW_REQUIRED_EXACTNESS = "below-required-exactness"
    PARTNER_EXCLUDED = "partner-excluded"
    NO_TIME = "no-time"  # both answers are there, and nothing between them can be timed
    FIRST_CHUNKS_DIFFER = "first-chunks-differ"  # a flag: the effect is per decoded token, which is what they share
    # hardware and operator
    THROTTLE = "throttle"
    FOREIGN_PROCESS = "foreign-process"
    CLOCK_STEP = "clock-step"
    CLOCK_MISMATCH = "clock-mismatch"
    OPERATOR = "operator"
    # startups
    IDENTITY_FAIL = "identity-fail"
    TOKENIZER_MISMATCH = "tokenizer-mismatch"
    NOT_READY = "not-ready"
    SERVER_ERROR = "server-error"
    HELPER_LOST = "helper-lost"  # a process of our own: recorder, null server, sampler, Ray
    LEASE_FAILED = "lease-failed"
    SURVIVORS = "survivors"
    COALESCED_ABOVE_CALIBRATION = "coalesced-above-calibration"  # a flag of a startup
    STARTUP_COALESCED = "startup-coalesced"  # excludes a startup whose times the client alone tells
    INTERRUPTED = "interrupted"


# What is said of a request or a pair that counts all the same.
FLAGS = frozenset(
    {
        Reason.CLIENT_ROUNDS_UNUSABLE,
        Reason.IDS_UNAVAILABLE,
        Reason.HASH_INCOMPLETE,
        Reason.CAPPED,
        Reason.CLIENT_STAMPS,
        Reason.PROMPT_RESTORED,
        Reason.FIRST_CHUNKS_DIFFER,
        Reason.CLOCK_MISMATCH,
    }
)

# A request that ended so has no answer: it says nothing of its arm, and its pair was not compared.
FAILED = frozenset(
    {
        Reason.HTTP_ERROR,
        Reason.ERROR_EVENT,
        Reason.STALL,
        Reason.DISCONNECT,
        Reason.SERVER_DIED,
        Reason.MALFORMED_STREAM,
        Reason.NO_CONTENT,
        Reason.REDIRECT,
    }
)
