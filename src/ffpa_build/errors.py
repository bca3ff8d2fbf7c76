"""The one exception of the build."""


class BuildError(Exception):
    """The build cannot go on; the message is one sentence with what is wrong and the fix."""
