"""Passwords are kept out of what is shown, logged or sent: one function that blots them out of any text."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

BLOT = "***"

_NAMES = (
    r"(?:password|passwd|passphrase|pwd|secret|(?:secret|access|api|private|account|shared|subscription)[_-]?key"
    r"|(?:secret|session|security|access|auth|api|bearer|refresh|id|hf|github)[_-]?token|credentials?)"
)
_USER = re.compile(r"(\b[A-Za-z][\w+.-]*://)([^\s/@:'\"]*):([^\s'\"]*)@(?=[^\s@/'\"])")
_TOKEN_AS_USER = re.compile(r"(\bhttps?://)([^\s/@:'\"]+)@")
_QUERY = re.compile(
    rf"([?&;](?:[\w.-]*[_.-])?(?:{_NAMES}|token|key|sig|signature|auth|sas|code|credential|awsaccesskeyid)=)[^\s&;'\"]+",
    re.IGNORECASE,
)
_KNOWN = re.compile(
    r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{20,}|hf_\w{20,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,})"
    r"|(?<=Bearer )[\w.~+/=-]{8,}"
)
_SETTING = re.compile(
    rf"((?:(?:^|[\s,{{\[(.'\"?&_-]){_NAMES}|(?<![\w-])token)['\"]?\s*[=:]\s*)(?!['\"]?(?:null|none|true|false)\b)"
    r"('[^']*'|\"[^\"]*\"|[^\s,}\])&;]+)",
    re.IGNORECASE | re.MULTILINE,
)


def masked(text: str) -> str:
    """A text without the passwords of its URLs and settings (`password: ...`), and without keys of known forms."""
    return _SETTING.sub(rf"\1{BLOT}", masked_urls(text))


def masked_urls(text: str) -> str:
    """A text without the passwords of its URLs and without keys of known forms; everything else stays, as in code."""
    if "://" in text:
        text = _USER.sub(rf"\1\2:{BLOT}@", text)
        text = _TOKEN_AS_USER.sub(_without_token, text)
        text = _QUERY.sub(rf"\1{BLOT}", text)
    return _KNOWN.sub(BLOT, text)


def masked_value(name: str, value: str) -> str:
    """The value of a setting, or a blot if its name says that it is secret."""
    return BLOT if masked(f"{name}={BLOT[:1]}") != f"{name}={BLOT[:1]}" else masked(value)


class MaskingFormatter(logging.Formatter):
    """Formats a record of a log without passwords, those of its traceback included."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return masked(super().format(record))


def masked_command(arguments: Iterable[str]) -> list[str]:
    """The words of a command line, each without passwords."""
    return [masked(argument) for argument in arguments]


def without_user(url: str) -> str:
    """A URL without the name and password in it."""
    return re.sub(r"^([A-Za-z][\w+.-]*://)[^/@]*@", r"\1", url)


def _without_token(found: re.Match[str]) -> str:
    return found[0] if found[2] == BLOT else f"{found[1]}{BLOT}@"
