"""What a refused call raises: built-in errors that `ffpa.supports` can tell from a bug."""


class UnsupportedError(Exception):
    """A call that is not run; the message says what was given, what is allowed, and the fix."""


class UnsupportedTypeError(UnsupportedError, TypeError):
    """A wrong data type, or no tensor at all."""


class UnsupportedValueError(UnsupportedError, ValueError):
    """A size, layout or option outside what ffpa takes."""


class UnsupportedFeatureError(UnsupportedError, NotImplementedError):
    """Attention that has a meaning but no kernel here."""


class UnsupportedDeviceError(UnsupportedError, RuntimeError):
    """A device that no compiled kernel fits."""


class FallbackWarning(UserWarning):
    """A call of `ffpa.sdpa` that torch runs, with the reason."""
