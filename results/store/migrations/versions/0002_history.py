"""History: named baselines, where imported campaigns came from, and the views that `campaign query` documents.

A view is derived and holds nothing; a changed view is a new revision all the same, so that a store answers by what its
revision says. exp() is not in every SQLite, so percentages of logarithms are a series, exact to 1e-9 below 5 %.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NEWEST = """(
    SELECT max(b.attempt) FROM block b
    WHERE b.campaign_id = {0}.campaign_id AND b.startup = {0}.startup AND b.fixture = {0}.fixture AND b.seed = {0}.seed
)"""

_REQUEST = f"""
CREATE VIEW v_request AS
SELECT r.id AS request_id, r.campaign_id, c.name AS campaign, r.startup AS startup_index, r.startup_attempt,
    r.fixture AS fixture_id, r.seed, r.repeat AS pair_index, r.role, r.arm, r.phase, r.position, r.order_in_pair,
    r.block_attempt, r.block_attempt BETWEEN 1 AND coalesce({_NEWEST.format("r")}, 0) - 1 AS superseded,
    r.admissible, r.reasons, r.error, r.prompt_tokens, r.completion_tokens, r.cached_tokens, r.finish_reason,
    r.n_rounds, r.n_q1_steps, (r.first_content_ns - r.send_ns) * 1e-6 AS ttft_ms,
    (r.last_content_ns - r.send_ns) * 1e-6 AS e2el_ms, r.engine_prefill_ns * 1e-6 AS prefill_ms,
    r.engine_decode_ns * 1e-6 / nullif(r.n_rounds, 0) AS request_average_engine_ms,
    (r.last_content_ns - r.first_content_ns) * 1e-6 / nullif(r.n_rounds, 0) AS request_average_client_ms,
    (r.completion_tokens - r.first_tokens) / (nullif(r.engine_decode_ns, 0) * 1e-9) AS decode_tokens_per_s_engine,
    s.sum_accepted * 1.0 / nullif(r.n_rounds, 0) AS accepted_drafts_per_round,
    r.completion_tokens * 1.0 / nullif(r.n_rounds, 0) AS emitted_tokens_per_round,
    1 + s.sum_accepted * 1.0 / nullif(r.n_rounds, 0) AS acceptance_length,
    s.sum_accepted * 1.0 / nullif(s.sum_drafted, 0) AS draft_acceptance_rate, s.accepted_histogram,
    s.engine_round_p50_ns * 1e-6 AS round_engine_step_p50_ms, s.engine_round_p90_ns * 1e-6 AS round_engine_step_p90_ms,
    s.engine_round_p99_ns * 1e-6 AS round_engine_step_p99_ms, s.client_round_p50_ns * 1e-6 AS round_sse_chunk_p50_ms,
    s.client_round_p90_ns * 1e-6 AS round_sse_chunk_p90_ms, s.client_round_p99_ns * 1e-6 AS round_sse_chunk_p99_ms,
    r.median_sm_clock_mhz, r.throttle_bits, r.token_sha256
FROM request r JOIN campaign c USING (campaign_id) JOIN request_summary s ON s.request_id = r.id
"""

_ROUND = """
CREATE VIEW v_round AS
SELECT d.request_id, r.campaign_id, r.startup AS startup_index, r.fixture AS fixture_id, r.seed,
    r.repeat AS pair_index, r.role, r.arm, r.phase, r.block_attempt, d.round_index,
    CASE d.kind WHEN 1 THEN 'spec' WHEN 2 THEN 'q1' END AS kind, d.client_ns * 1e-6 AS client_ms, d.client_tokens,
    d.coalesced, d.engine_ns * 1e-6 AS engine_ms, d.draft_ns * 1e-6 AS draft_ms, d.verify_ns * 1e-6 AS verify_ms,
    d.sample_ns * 1e-6 AS sample_ms, d.commit_ns * 1e-6 AS commit_ms, d.rows, d.drafted, d.accepted, d.emitted
FROM round d JOIN request r ON r.id = d.request_id
"""

_PAIR = f"""
CREATE VIEW v_pair AS
SELECT p.campaign_id, c.name AS campaign, c.created_utc, p.startup AS startup_index, p.fixture AS fixture_id, p.seed,
    p.repeat AS pair_index, 'E' || p.exactness AS exact_level, p.divergence_index AS first_divergence, p.delta_log,
    p.delta_ns * 1e-6 AS delta_ms, p.admissible, p.reasons,
    (SELECT r.order_in_pair = 0 FROM request r WHERE r.campaign_id = p.campaign_id AND r.startup = p.startup
        AND r.fixture = p.fixture AND r.seed = p.seed AND r.repeat = p.repeat AND r.block_attempt = p.block_attempt
        AND r.role = 'control' AND r.phase = 'measure') AS control_first
FROM pair p JOIN campaign c USING (campaign_id)
WHERE p.block_attempt = {_NEWEST.format("p")}
"""

_STARTUP = """
CREATE VIEW v_startup AS
SELECT s.campaign_id, c.name AS campaign, s.startup AS startup_index, s.attempt, s.role, s.created_utc, s.host,
    s.boot_id, s.device_uuids AS gpu_uuids, s.processes AS pid_tree, s.ready_ns * 1e-9 AS ready_s,
    json_extract(s.calibration, '$.delivery_p50_ns') * 1e-3 AS calib_delivery_us_p50,
    json_extract(s.calibration, '$.delivery_p99_ns') * 1e-3 AS calib_delivery_us_p99,
    json_extract(s.calibration, '$.resolution_ns') * 1e-6 AS resolution_ms,
    e.status, e.reason AS fail_reason, e.message
FROM startup s JOIN campaign c USING (campaign_id)
LEFT JOIN startup_end e ON e.campaign_id = s.campaign_id AND e.startup = s.startup AND e.attempt = s.attempt
    AND e.role IN ('', s.role)
"""

_EFFECT = """
CREATE VIEW v_effect AS
WITH placed AS (
    SELECT v.*, row_number() OVER w AS place, count(*) OVER (PARTITION BY v.campaign_id, v.startup_index, v.fixture_id,
        v.seed) AS n
    FROM v_pair v WHERE v.admissible AND v.delta_log IS NOT NULL
    WINDOW w AS (PARTITION BY v.campaign_id, v.startup_index, v.fixture_id, v.seed ORDER BY v.delta_log)
), medians AS (
    SELECT campaign_id, campaign, created_utc, startup_index, fixture_id, seed, n AS n_pairs, avg(delta_log) AS m
    FROM placed WHERE place IN ((n + 1) / 2, (n + 2) / 2)
    GROUP BY campaign_id, startup_index, fixture_id, seed
)
SELECT campaign_id, campaign, created_utc, startup_index, fixture_id, seed, n_pairs, m AS effect_log,
    100 * m * (1 + m / 2 * (1 + m / 3 * (1 + m / 4 * (1 + m / 5)))) AS effect_pct
FROM medians
"""


def upgrade() -> None:
    op.create_table(
        "baseline",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("utc", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("campaign_id", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("row_sha256", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.campaign_id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name", "campaign_id", name="one_baseline_member"),
    )
    op.create_table(
        "imported",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("utc", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("campaign_id", sa.Text(), nullable=False),
        sa.Column("row_sha256", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaign.campaign_id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    for view in (_REQUEST, _ROUND, _PAIR, _STARTUP, _EFFECT):
        op.execute(view)
