"""What the columns of the store mean, and their units: `campaign query --schema`. Knows names, reads no campaign.

A column means the same wherever its name stands, in tables and in views; views tell five by reports' names too (ANEW).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlalchemy import Connection, text

from campaigns.errors import UsageError
from campaigns.nearest import alike, nearest

HEADER = ("table", "kind", "column", "type", "unit", "meaning")
CAMPAIGNS = "v_campaign"
CAMPAIGN_COLUMNS = (
    *("campaign_id", "created_utc", "name", "status", "mode", "control", "candidate", "fixture_id", "effect_pct"),
    *("ci_low_pct", "ci_high_pct", "noise_floor_pct", "evidence", "verdict", "n_startups", "n_pairs", "n_admissible"),
    *("gpu", "host", "model", "git_commit", "tags"),
)
ANEW = {
    "startup": "startup_index", "fixture": "fixture_id", "repeat": "pair_index",
    "exactness": "exact_level", "divergence_index": "first_divergence",
}  # fmt: skip
_UNITS = {
    "ns": "ns", "ms": "ms", "s": "s", "mhz": "MHz", "mw": "mW", "mj": "mJ", "c": "degrees C", "bytes": "bytes",
    "pct": "%", "utc": "UTC", "log": "ln ratio", "sha256": "hex", "json": "JSON",
}  # fmt: skip
_BY_NAME = {
    "calib_delivery_us_p50": "us", "calib_delivery_us_p99": "us", "decode_tokens_per_s_engine": "tokens/s",
    "prompt_tokens": "tokens", "completion_tokens": "tokens", "cached_tokens": "tokens", "first_tokens": "tokens",
    "max_tokens": "tokens", "client_tokens": "tokens",
}  # fmt: skip
_TEXT = """
version_num: revision of the schema
id: row number of this file only
campaign_id: the campaign
campaign: name of the campaign
created_utc: when it was recorded or began
utc: when it happened
name: of the campaign, or of the baseline
note: free text kept with it
row_sha256: hash of the row, which verify recomputes
startup: number of the server start, from 0
startup_index: number of the server start, from 0
attempt: of the startup or block, from 1; the newest counts
startup_attempt: which attempt of the startup served it
block_attempt: which attempt of the block it is of; 0 is no block's
fixture: id of the prompt
fixture_id: id of the prompt
seed: of the server's sampling
repeat: number of the pair in its block, from 0
pair_index: number of the pair in its block, from 0
opened_utc: when the block began
methodology_version: raised when a figure could come out differently from the same rows
config_json: the composed configuration
config_sha256: hash of the configuration
plan_json: the frozen plan: arms, fixtures, order
fingerprint: JSON of what makes two results comparable
provenance: JSON of git, host, versions, configuration files
status: of the campaign, startup or probe
reason: why
n_seen: startups that a look saw, from the first on
decided: whether the look ended the campaign
fail_reason: why the startup failed
subject: operator/schedule, or an arm
decision: promote, hold or reject
by: who decided
evidence_json: the ledger as it stood
device_uuid: the device
device_uuids: JSON list of leased devices
gpu_uuids: JSON list of leased devices
ns: clock of the host
sm_clock_mhz: clock of the processors
memory_clock_mhz: clock of the memory
median_sm_clock_mhz: median clock during the request
min_sm_clock_mhz: lowest clock during the request
power_mw: power draw
temperature_c: temperature
throttle_bits: NVML's reasons for a lower clock, as bits
used_bytes: memory in use
load: load average of one minute
foreign_pids: JSON of processes that are not ours
message: what was said of it
key: JSON of the pair
moment: warm or last
identity: JSON of what the live server said of itself
source: the store it came from
rounds: how many rounds a profile is of
clock: device (times of kernels) or host (times of calls)
round_ns: those rounds on the host's clock, all together
piece: of a round: draft, verify, sample, commit; empty between them
operator: empty: what no operator covers
schedule: which one ran
calls: how often, in all those rounds
launches: kernels and copies of the device, in all those rounds
total_ns: in all those rounds
exactness: 0 to 5: what of both answers is equal (docs/statistics.md)
exact_level: E0 to E5: what of both answers is equal
divergence_index: first token that differs, from 0
first_divergence: first token that differs, from 0
divergence_ids: JSON of the two ids there
delta_log: ln of candidate over control; negative is faster
delta_ns: candidate minus control, a round
delta_ms: candidate minus control, a round
admissible: whether it counts
reasons: JSON list of exclusions and flags
gate: which check
library_sha256: the build that was checked
line_json: the line that was imported
corpus: hash of the frozen corpus
tokenizer: hash of the tokenizer's files
template: hash of the chat template
prompt_sha256: hash of the prompt's token ids
role: control or candidate
arm: name of the arm
phase: warmup or measure
position: number of the request in its server life
order_in_pair: 0 first, 1 second
prompt_tokens: length of the prompt
max_tokens: budget of the answer
sched_ns: when the request was due
send_ns: when its first byte was sent
first_event_ns: first event of the stream
first_characters: characters of the first event with a token
energy_mj: drawn by all leased devices from sending to the end; empty where they do not tell
energy_source: counter: NVML's; power: integrated samples
stamp: whose clock told the chunks; empty where only the client's was asked
first_wake_ns: from the first token's arrival until the client's process had it
last_wake_ns: from the last token's arrival until the client's process had it
sent_seed: seed of the request itself; seed is the one that its fixture names
wake_ns: from the chunk's arrival until the client's process had it
first_content_ns: first event with a token
last_content_ns: last event with a token
end_ns: end of the stream
first_tokens: tokens of the prefill
n_rounds: rounds of the answer; unknown where the server does not tell
n_q1_steps: single steps beside the rounds
completion_tokens: tokens of the answer
cached_tokens: prompt tokens that the server had cached
finish_reason: why the answer ended
text: the answer
reasoning_text: the reasoning before it
tool_calls_json: calls of tools
token_ids: packed ids of the answer
token_sha256: hash of the ids
emitted_sha256: hash of emitted counts by round
accepted_sha256: hash of accepted counts by round
drafted_sha256: hash of drafted counts by round
engine_queue_ns: waiting, by the engine's clock
engine_prefill_ns: prefill, by the engine's clock
engine_decode_ns: decoding, by the engine's clock
counters: JSON of calls by schedule
error: what went wrong
http_status: of the answer
rounds_sha256: hash of the rounds
request_id: the request's row
sum_accepted: accepted drafts of the answer
sum_drafted: proposed drafts of the answer
sum_emitted: tokens of its rounds
accepted_histogram: JSON: rounds by accepted drafts, from 0
n_client_rounds: rounds that the client timed
client_round_mean_ns: mean of the client's rounds
client_round_p50_ns: median of the client's rounds
client_round_p90_ns: 90th percentile of the client's rounds
client_round_p99_ns: 99th percentile of the client's rounds
client_round_lag1: correlation of neighbouring rounds
n_engine_rounds: rounds that the engine timed
engine_round_mean_ns: mean of the engine's rounds
engine_round_p50_ns: median of the engine's rounds
engine_round_p90_ns: 90th percentile of the engine's rounds
engine_round_p99_ns: 99th percentile of the engine's rounds
engine_round_lag1: correlation of neighbouring rounds
round_index: number of the round, from 0
kind: 1 or spec: a speculative round; 2 or q1: a single step
client_ns: time of the round as the client saw it
client_tokens: tokens of the client's chunk
coalesced: whether the chunk may hold several rounds
engine_ns: time of the round by the engine's clock
draft_ns: drafting
verify_ns: verifying
sample_ns: sampling
commit_ns: committing
rows: rows that were verified
drafted: proposed drafts
accepted: accepted drafts
emitted: tokens of the round
scorer: who judged the answer
version: of the scorer
arguments_json: what the scorer was given
outcome: passed, failed, capped, …
details_json: why
boot_id: of the host
host: name of the host
processes: JSON of pids and start times
pid_tree: JSON of pids and start times
ready_ns: from start to ready
ready_s: from start to ready
environment: JSON of the server's environment
command: JSON of the server's command line
calibration: JSON of what the client costs
ended_utc: when it ended
survivors: JSON of processes that outlived it
n_pairs: recorded pairs
n_admissible: pairs that count
effect_log: median of the pairs' delta_log
effect_pct: paired effect; negative is faster
control_first: whether the control was asked first
superseded: whether a newer attempt exists
ttft_ms: from sending to the first token; unknown of a restored prompt
e2el_ms: from sending to the last token
prefill_ms: prefill, by the engine's clock; unknown of a restored prompt
request_average_engine_ms: decoding over rounds, engine clock
request_average_client_ms: decoding over rounds, client clock
decode_tokens_per_s_engine: tokens after the first over decoding
accepted_drafts_per_round: accepted over rounds
emitted_tokens_per_round: tokens over rounds
acceptance_length: accepted drafts a round, and the bonus token
draft_acceptance_rate: accepted over proposed
round_engine_step_p50_ms: median round, engine clock
round_engine_step_p90_ms: 90th percentile, engine clock
round_engine_step_p99_ms: 99th percentile, engine clock
round_sse_chunk_p50_ms: median round, client clock
round_sse_chunk_p90_ms: 90th percentile, client clock
round_sse_chunk_p99_ms: 99th percentile, client clock
client_ms: time of the round as the client saw it
engine_ms: time of the round by the engine's clock
draft_ms: drafting
verify_ms: verifying
sample_ms: sampling
commit_ms: committing
calib_delivery_us_p50: median delivery of a chunk to the client
calib_delivery_us_p99: 99th percentile of that
resolution_ms: smallest difference of a request average that the client sees
mode: ab or aa
control: name of the control arm
candidate: name of the candidate arm
ci_low_pct: lower end of the 95 % interval
ci_high_pct: upper end of the 95 % interval
noise_floor_pct: what equal arms may differ by
evidence: screen, indicative or supported
verdict: faster, slower, equivalent, …
n_startups: startups with an admissible pair
gpu: names of the devices
model: checkpoint or name of the served model
git_commit: of the code that measured
tags: what people tagged it with, by commas
mark: tag, untag, note, archive or restore
"""
MEANINGS = dict(line.split(": ", 1) for line in _TEXT.strip().splitlines())


def schema(connection: Connection, table: str = "") -> list[tuple[str, ...]]:
    """Rows under HEADER, of one table or view or of all; UsageError that names the nearest for an unknown one."""
    listed = text("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY type DESC, name")
    kinds = {str(name): str(kind) for name, kind in connection.execute(listed)} | {CAMPAIGNS: "view"}
    if table and table not in kinds:
        raise UsageError(f"--schema {table}: there is no such table or view; {nearest(table, kinds)}")
    return [row for name in ([table] if table else kinds) for row in _rows(connection, name, kinds[name])]


def _rows(connection: Connection, name: str, kind: str) -> Iterator[tuple[str, ...]]:
    if name == CAMPAIGNS:
        yield from ((name, kind, column, "", unit(column), MEANINGS[column]) for column in CAMPAIGN_COLUMNS)
        return
    for row in connection.execute(text("SELECT name, type FROM pragma_table_info(:name)"), {"name": name}):
        yield name, kind, row.name, row.type.lower(), unit(row.name), MEANINGS.get(row.name, "")


def meant(connection: Connection, sql: str, complaint: str) -> str:
    """What SQLite's `no such table` or `no such column` may have meant; empty where nothing is like it."""
    wrong = re.match(r"no such (column|table): (?:\w+\.)*(\w+)", complaint)
    if wrong is None:
        return ""
    columns: dict[str, list[str]] = {}
    for table, _, column, *_ in schema(connection):
        columns.setdefault(table, []).append(column)
    asked = [name for name in columns if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
    known = list(columns) if wrong[1] == "table" else [column for name in asked for column in columns[name]]
    other = (ANEW | {new: old for old, new in ANEW.items()}).get(wrong[2], "")
    found = other if other in known else alike(wrong[2], known)
    return f"; did you mean {found}?" if found else ""


def unit(column: str) -> str:
    """From the end of its name, as everywhere in this project."""
    if column in _BY_NAME:
        return _BY_NAME[column]
    ending = re.search(r"_([a-z0-9]+)$|^(ns|utc)$", column)
    return _UNITS.get((ending[1] or ending[2]) if ending else "", "")
