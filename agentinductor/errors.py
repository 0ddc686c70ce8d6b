"""Every error a user can meet, one class per mistake: what happened, where, and the next step.

    AgentInductorError
    ├── SettingsError          an option, mode or environment variable has no such name or value
    ├── TargetError            a TARGET cannot be imported or does not return (model, inputs)
    ├── SchemaError            a definition, solution, trace or plan is malformed
    ├── UnsupportedRegionError a region cannot be lowered to a definition (reason attached)
    ├── CacheError             the kernel cache cannot be used
    │   ├── DamagedEntryError  an entry's bytes do not match its manifest
    │   └── CacheUnwritableError
    ├── BuildError             a solution does not compile
    │   └── ToolchainError     the compiler, triton or cuda-python is missing
    ├── StaticCheckError       a source uses something that solutions may not use
    └── EvaluationError        the evaluation itself (not the candidate) failed
"""


class AgentInductorError(Exception):
    """Base of every error this package raises on purpose."""


class SettingsError(AgentInductorError, ValueError):
    """An option, mode or environment variable has no such name or value."""


class TargetError(AgentInductorError, ValueError):
    """A TARGET cannot be imported or does not return a model and its inputs."""


class SchemaError(AgentInductorError, ValueError):
    """A record is malformed; the message names the field."""


class UnsupportedRegionError(AgentInductorError):
    """A region cannot be lowered to a definition. `reason` is one of schema.decision.Reason."""

    def __init__(self, reason, detail=""):
        super().__init__(f"{reason}: {detail}" if detail else str(reason))
        self.reason = reason
        self.detail = detail


class CacheError(AgentInductorError):
    """The kernel cache cannot be used."""


class DamagedEntryError(CacheError):
    """An entry's bytes do not match its manifest."""


class CacheUnwritableError(CacheError):
    """The cache root cannot be written."""


class BuildError(AgentInductorError):
    """A solution does not compile; the message holds the compiler's own words."""


class ToolchainError(BuildError):
    """The compiler, triton or cuda-python needed by a solution is missing on this machine."""


class StaticCheckError(AgentInductorError):
    """A source uses something that solutions may not use; the message names the line."""


class EvaluationError(AgentInductorError):
    """The evaluation itself, not the candidate, failed."""
