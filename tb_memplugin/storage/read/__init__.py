"""The frames of a run's tags, as a source has them, become checked contents of streams, within the limits of one run.

`decode_tag` turns stored bytes into pieces or sentences on damage; a `Stream` joins pieces to sessions and sessions to
runs; `Reading` counts what that takes. The reader of runs, the recorder's summaries and exports call it.
"""

from tb_memplugin.storage.read.activations import ActivationRows, activation_rows_of
from tb_memplugin.storage.read.reading import (
    DecodedTag,
    Piece,
    Pieces,
    Reading,
    ReadStreams,
    decode_tag,
    groups,
    join_with_peaks,
)
from tb_memplugin.storage.read.samples import join_samples, samples_bytes, samples_of_workers, tables_of
from tb_memplugin.storage.read.streams import (
    ACTIVATION_HEADS,
    ACTIVATIONS,
    ALL,
    BASIC,
    BASIC_FIGURES,
    FIGURES,
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
    LaterSessions,
    Stream,
    basic_streams,
    hidden_by_losses,
)
