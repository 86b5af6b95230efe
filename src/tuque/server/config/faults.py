"""What is wrong with an option, in one line."""


class ConfigError(ValueError):
    """A value that cannot be used, in one line: key, value, origin, what is allowed.

    `reason` is `bad`, `weak`, `unknown` or `immutable`.
    """

    def __init__(
        self, name: str, value: str, allowed: str, reason: str = "bad", where: str = ""
    ) -> None:
        self.name, self.value, self.allowed = name, value, allowed
        self.reason, self.where = reason, where
        super().__init__(self._line())

    def _line(self) -> str:
        place = f" ({self.where})" if self.where else ""
        if self.reason == "unknown":
            return f"unknown option '{self.name}'{place}{self.allowed}"
        if self.reason == "immutable":
            return f"{self.name}: cannot be changed while the server runs{place}"
        value = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in self.value
        )
        return f"{self.name}: '{value}' is not allowed{place}; allowed: {self.allowed}"

    @property
    def reply(self) -> str:
        """Disque's error line for CONFIG SET, without the leading `-`."""
        if self.reason == "bad":
            return f"ERR Invalid argument '{self.value}' for CONFIG SET '{self.name}'"
        if self.reason == "weak":
            return f"ERR CONFIG SET {self.name}: {self.allowed}"
        return f"ERR Unsupported CONFIG parameter: {self.name}"
