"""Text from a run directory, for a terminal or a log."""

import unicodedata


def clean(text: str) -> str:
    """`text` from a run directory with control characters replaced."""
    return "".join("�" if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") else one for one in text)
