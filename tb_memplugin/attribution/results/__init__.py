"""FACE."""

from tb_memplugin.attribution.results.ledger import attribute, ledger_of, peak_event
from tb_memplugin.attribution.results.step_requests import step_requests
from tb_memplugin.attribution.results.timeline import timeline
