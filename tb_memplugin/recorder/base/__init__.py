"""What the recorder stands on: checked settings, the background thread that does what takes time,
faults that stop one part and not the training, what keeps the process as it was (forks, temporary
directories), and guarded reading of the program's objects. The other packages of the recorder call
it; it calls none and imports neither NumPy nor TensorFlow."""

from tb_memplugin.recorder.base import background, reading
from tb_memplugin.recorder.base.background import (
    FOREIGN_SECONDS,
    Background,
    Job,
    end_foreign_calls,
    submit,
    wait,
    weakly,
)
from tb_memplugin.recorder.base.isolation import (
    Due,
    Faults,
    PrivateDirectory,
    abandon_in_child,
    changes,
    is_private,
    remove_abandoned,
)
from tb_memplugin.recorder.base.reading import (
    ByIdentity,
    Kept,
    asked,
    attribute,
    attributes,
    closure,
    contained,
    is_a,
    is_subclass,
    leaves,
    note_code,
    own,
    own_list,
    quiet,
    unread,
    unwrapped,
)
from tb_memplugin.recorder.base.settings import (
    DEFAULT_LOG_DIR,
    Settings,
    checked_settings,
    is_batch_size,
    is_step,
)
