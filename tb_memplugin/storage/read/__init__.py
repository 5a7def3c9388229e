"""FACE."""

from tb_memplugin.storage.read.activation_rows import ActivationRows, activation_rows_of
from tb_memplugin.storage.read.attempts import LaterSessions, hidden_by_losses
from tb_memplugin.storage.read.columns import join_samples, rows_not_in, samples_bytes, tables_of
from tb_memplugin.storage.read.decoding import (
    PIECE_BYTES,
    DecodedTag,
    Piece,
    TagSurvey,
    decode_tag,
    survey_tag,
    surveys_bytes,
)
from tb_memplugin.storage.read.reading import Reading, groups, left_out
from tb_memplugin.storage.read.streams import (
    ACTIVATIONS,
    ALL,
    BASIC,
    MAPS,
    MERGED,
    META,
    OF_TAG,
    OOM,
    PEAK,
    REQUESTS,
    ROLLUPS,
    SAMPLE_FIGURES,
    SAMPLES,
    SNAPSHOTS,
    TIMELINES,
    Stream,
    basic_streams,
)
from tb_memplugin.storage.read.thinning import Contents, taken, thin_tags, thinned
