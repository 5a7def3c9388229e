"""FACE."""

from tb_memplugin.fit.cases import sizes_for
from tb_memplugin.fit.conditions import Conditions
from tb_memplugin.fit.demand import Demand, demand_of, demand_sentences, describe_demand, peak_demand
from tb_memplugin.fit.fixes import MAX_FIXED, advice, with_advice
from tb_memplugin.fit.history import FailedRequest
from tb_memplugin.fit.plan import plan_for
from tb_memplugin.fit.plan_answer import Kind, Plan, TimeSource, describe_plan
from tb_memplugin.fit.prediction import Method, Reproduced
from tb_memplugin.fit.sized_steps import SizedStep, peak_in_one_piece
from tb_memplugin.fit.what_if import Globs, RunPredictor, capacity_bytes, checked_conditions, device_of
from tb_memplugin.fit.what_if_answer import WhatIf, describe_measured, describe_what_if, measured_snapshot
