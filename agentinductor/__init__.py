"""agentinductor: a torch.compile backend whose kernels are written by agents.

Importing this package imports no torch: the public names load when they are first used.
"""

from importlib import import_module

__version__ = "0.1.0"
__all__ = ["agentinductor", "benchmark", "explain", "prewarm"]


def __getattr__(name: str):
    if name in __all__:
        return getattr(import_module(".api", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
