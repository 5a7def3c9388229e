"""The errors whose text is meant for the user.

MemoryPluginError
├── RecordingError      a recorder or summary call that cannot work as asked, known before training starts
├── FormatError         bytes that are not what they claim to be (a frame, a profile, a dump, a log)
│   └── NewerFormatError    written by a newer tb_memplugin than this one
├── NotFoundError       a run, device, step or layer that is not in the data
└── RequestError        a parameter of a command or an HTTP request that is missing or malformed

Every message says what is wrong, what was received and what to do. Anything else that is raised is a bug.
"""


class MemoryPluginError(Exception):
    """Base of every error whose message is written for the user."""


class RecordingError(MemoryPluginError, ValueError):
    """A recorder or summary call cannot work as asked. A `ValueError`, as `tf.summary` raises them."""


class FormatError(MemoryPluginError):
    """Bytes are damaged, hostile or of another format; only these bytes are lost."""


class NewerFormatError(FormatError):
    """The bytes were written by a newer version of this package."""


class NotFoundError(MemoryPluginError):
    """What was asked for is not in the data."""


class RequestError(MemoryPluginError):
    """A parameter is missing, repeated or malformed."""
