"""Passwords and keys are replaced by `***` in every text that is shown, logged or sent."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

MASK = "***"

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


def mask_secrets(text: str) -> str:
    """Mask the passwords in URLs and in settings (`password: ...`), and keys of known forms."""
    return _SETTING.sub(rf"\1{MASK}", mask_secrets_in_urls(text))


def mask_secrets_in_urls(text: str) -> str:
    """Mask the passwords in URLs and keys of known forms, and nothing else: source code stays what it is."""
    if "://" in text:
        text = _USER.sub(rf"\1\2:{MASK}@", text)
        text = _TOKEN_AS_USER.sub(_mask_token, text)
        text = _QUERY.sub(rf"\1{MASK}", text)
    return _KNOWN.sub(MASK, text)


def mask_setting(name: str, value: str) -> str:
    """The value of a setting; the whole value is masked if the name of the setting is that of a secret."""
    return MASK if mask_secrets(f"{name}={MASK[:1]}") != f"{name}={MASK[:1]}" else mask_secrets(value)


class MaskingFormatter(logging.Formatter):
    """Formats log records without passwords, also in their tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


def mask_arguments(arguments: Iterable[str]) -> list[str]:
    """Mask the passwords in the arguments of a command line."""
    return [mask_secrets(argument) for argument in arguments]


def drop_user(url: str) -> str:
    """A URL without its user name and password."""
    return re.sub(r"^([A-Za-z][\w+.-]*://)[^/@]*@", r"\1", url)


def _mask_token(found: re.Match[str]) -> str:
    return found[0] if found[2] == MASK else f"{found[1]}{MASK}@"
