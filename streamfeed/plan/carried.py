"""A user's function on its way to other processes, which have not run the user's script."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from streamfeed.objectives import Map

__all__ = ["CarriedMap"]


class CarriedMap:
    """A :class:`~streamfeed.objectives.Map` whose function is pickled by value where its module is the user's script.

    Workers do not import that script again. Raises :class:`ConfigError` where the function cannot be pickled.
    """

    def __init__(self, settings: Map) -> None:
        import cloudpickle

        self._settings = replace(settings, function=_nothing)
        try:
            self._pickled: bytes = cloudpickle.dumps(settings.function)
        except Exception as error:
            raise ConfigError(
                f"the map function {settings.name} cannot be sent to workers: {error}; use a function at the top of a "
                "module, and let it open what it needs when it is first called"
            ) from error

    def get(self) -> Map:
        """Return the function with its settings, made anew.

        Raises :class:`ConfigError` where what it needs cannot be imported here.
        """
        try:
            function: Any = pickle.loads(self._pickled)  # noqa: S301 - the user's own function, pickled in this run
        except Exception as error:
            raise ConfigError(f"the map function cannot be loaded in a worker: {error}") from error
        return replace(self._settings, function=function)


def _nothing(record: object) -> object:
    return record
