"""FACE."""

from tb_memplugin.analysis import changes, facts
from tb_memplugin.analysis.answer import (
    QUESTIONS,
    Answer,
    AnswerName,
    AnswerSource,
    AnswerStatus,
    EvidenceView,
    run_status,
    with_ranks,
    worst,
)
from tb_memplugin.analysis.causes import CauseKind, retracing_of
from tb_memplugin.analysis.changes import (
    ChangeEffect,
    Epoch,
    LayerTotals,
    ValidationPass,
    change_effects,
    layer_totals,
    table_at,
)
from tb_memplugin.analysis.composition import Overview, first_described, overview
from tb_memplugin.analysis.facts import (
    DeviceFacts,
    Peak,
    capacity_of,
    device_facts,
    device_names,
    device_order,
    device_phase,
    highest_peak,
    main_phase,
    of_one_kind,
    phases,
    step_name,
    step_range,
)
from tb_memplugin.analysis.growth import Growth, growth_of
from tb_memplugin.analysis.host import (
    PART_NAMES,
    HostSummary,
    describe_host,
    host_findings,
    host_steps,
    host_summaries,
    host_summary,
)
from tb_memplugin.analysis.pool import (
    POOL_SOURCES,
    MemorySegment,
    Part,
    PoolGrowth,
    PoolHistory,
    PoolSource,
    PoolSpan,
    device_memory,
    pool_history,
    pool_steps,
)
from tb_memplugin.analysis.questions import answers, describe_answers
from tb_memplugin.analysis.rows import comparable_steps, snapshots_of, step_rows
from tb_memplugin.analysis.run_findings import findings, former_findings, growth_findings, recomputation_findings
from tb_memplugin.analysis.workers import (
    combine,
    describe_devices,
    of_sessions,
    series_bytes,
    summarize_session,
    summarize_worker,
)
