"""FACE."""

from tb_memplugin.storage.cache import given_back
from tb_memplugin.storage.catalog import RunTags, no_records, of_session, of_worker, workers_of
from tb_memplugin.storage.failed_sessions import failed_session
from tb_memplugin.storage.rollups import RollupReader, WorkerRuns
from tb_memplugin.storage.run_reader import LoadedRun, Reader
from tb_memplugin.storage.sessions import limited
