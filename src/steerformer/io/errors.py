"""Errors of reading and writing files."""


class DataError(ValueError):
    """Data that cannot be used; the message is one line that names the file or folder."""


def describe_os_error(error: OSError, file: object = "a file") -> str:
    """The file, or ``file`` if the system does not name one, and the reason."""
    return f"cannot read or write {error.filename or file}: {error.strerror or error}"
