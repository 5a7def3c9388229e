"""What runs say about memory: key figures, the four answers, findings, and the series of every
view, with sentences.

In comes a `Run` as it was read, or the runs of its workers; out go immutable records, each with its
sentences. The server, the terminal, the library and the predictions of `fit` call it, and the
recorder for the summary of its session. `log_findings` reads logs instead.
"""

from tb_memplugin.analysis.answer import (
    QUESTIONS,
    Answer,
    AnswerEvidence,
    AnswerName,
    AnswerSource,
    AnswerStatus,
    EvidenceView,
    answers,
    failure_of,
    run_status,
    with_ranks,
    worst,
)
from tb_memplugin.analysis.causes import CauseKind, retracing_of
from tb_memplugin.analysis.changes import (
    LayerChange,
    comparable_steps,
    former_bytes,
    layer_changes,
    step_changes,
)
from tb_memplugin.analysis.composition import (
    Epoch,
    LayerTotals,
    Overview,
    ValidationPass,
    epochs,
    first_described,
    layer_totals,
    overview,
    snapshots_of,
    table_at,
    validation_passes,
)
from tb_memplugin.analysis.facts import (
    DeviceFacts,
    Peak,
    StepRange,
    capacity_of,
    comparable,
    device_facts,
    device_names,
    device_order,
    device_phase,
    highest_peak,
    main_phase,
    most_loaded,
    phases,
    range_of,
    step_name,
    step_range,
)
from tb_memplugin.analysis.growth import Growth, growth_findings, growth_of
from tb_memplugin.analysis.host import (
    HOST_COLUMNS,
    PART_NAMES,
    HostSummary,
    host_findings,
    host_growth,
    host_steps,
    host_summaries,
    host_summary,
)
from tb_memplugin.analysis.largest import (
    LargestLayer,
    RequestContents,
    finding,
    largest_at_failure,
    largest_layer,
    request_contents,
)
from tb_memplugin.analysis.log_findings import log_findings
from tb_memplugin.analysis.pool import (
    POOL_SOURCES,
    MemorySegment,
    Part,
    PoolColumns,
    PoolGrowth,
    PoolHistory,
    PoolSource,
    PoolSpan,
    device_memory,
    pool_history,
    pool_steps,
)
from tb_memplugin.analysis.run_findings import findings, former_findings, recomputation_findings
from tb_memplugin.analysis.workers import (
    ComparedSteps,
    DeviceRow,
    Imbalance,
    WorkerInfo,
    combine,
    describe_devices,
    of_sessions,
    series_bytes,
    summarize_session,
    summarize_worker,
)
