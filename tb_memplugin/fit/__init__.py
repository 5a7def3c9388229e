"""What a recorded training would need under other conditions, and which change makes it fit.

In come a run with the requests of its traced steps, and `Conditions`, checked by
`checked_conditions`. A `Predictor` simulates them on BFC's rules, and returns a prediction, a
`WhatIf` or a curve; `plan_for` and `advice` search for the change with which a training fits into a
budget or after a failure. Of a compiled step, `Ask` asks the compiler. The package's `what_if` and
`plan`, the command line, the server and `largest_batch_size` call it. Pure."""

from tb_memplugin.fit.asking import MOST_ASKED, Ask, Asked, Measure, Measured, PeakSource
from tb_memplugin.fit.cases import Method
from tb_memplugin.fit.changes import Segments
from tb_memplugin.fit.conditions import (
    RECORDED,
    Conditions,
    Globs,
    Interval,
    capacity_bytes,
    checked_conditions,
)
from tb_memplugin.fit.demand import (
    Demand,
    demand_of,
    demand_sentences,
    peak_demand,
)
from tb_memplugin.fit.evidence import Evidence, Failure, Ran, recorded_program, stretch
from tb_memplugin.fit.fixes import (
    MAX_FIXED,
    MEASURE,
    Advice,
    advice,
    beyond_batch,
    simulated_fixes,
    with_advice,
)
from tb_memplugin.fit.planner import plan_for
from tb_memplugin.fit.plans import (
    Applied,
    Kind,
    Plan,
    PlanOption,
    TimeSource,
    code_of,
)
from tb_memplugin.fit.prediction import (
    FITS,
    Prediction,
    WhatIf,
    describe_what_if,
    measured_snapshot,
)
from tb_memplugin.fit.predictor import Predictor, device_of
from tb_memplugin.fit.questions import answer_of, batch_limit, curve, curve_sizes, enough_capacity
from tb_memplugin.fit.simulation import (
    FailedRequest,
    Reproduced,
    between_steps,
    peak_in_one_piece,
    reproduce,
)
from tb_memplugin.fit.steps import SizedStep, sizes_for, temporary_bytes
