"""The fields of one config.json, and the errors that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.models.model_names import catalogue, shortened
from workloads.request import InputError

MOST = 10**9


class Fields:
    """The fields of one config.json; those of a nested ``text_config`` come first. An absent field and a null one are the
    same. Every fault is an `InputError` that names the file, the field and the value.

    >>> Fields({"n_layer": 12}, "gpt2").need("num_hidden_layers", "n_layer")
    12
    """

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self._where = where
        nested = config.get("text_config")  # of a model that also sees or hears
        if nested is not None and not isinstance(nested, Mapping):
            raise self.fail("text_config", f"must be an object of fields, not {shortened(nested)}")
        self.defaulted: list[str] = []
        if nested is not None:
            nested = {**self._defaults(config, nested), **{k: v for k, v in nested.items() if v is not None}}
        self._values: Mapping[str, Any] = {**config, **(nested or {})}

    def _defaults(self, config: Mapping[str, Any], nested: Mapping[str, Any]) -> dict[str, Any]:
        """A ``text_config`` leaves out what its published class has as default: real files do."""
        defaults: dict[str, Any] = catalogue()["text_defaults"].get(str(nested.get("model_type")), {})
        found = {name: value for name, value in defaults.items() if nested.get(name) is None and config.get(name) is None}
        self.defaulted = [f"{name} {value}" for name, value in found.items()]
        return found

    def names_with(self, words: Sequence[str]) -> list[str]:
        """The fields that are set and whose name has one of these words."""
        return [name for name, value in self._values.items() if value and any(word in name.replace("qkv", "") for word in words)]

    def get(self, *names: str) -> Any:
        """The first of the fields that is there, or None."""
        return next((self._values[name] for name in names if self._values.get(name) is not None), None)

    def fail(self, name: str, what: str) -> InputError:
        """The error to raise."""
        return InputError(f"{self._where}: {name} {what}")

    def count(self, *names: str, least: int = 1) -> int | None:
        """A whole number of at least ``least``, or None."""
        name = next((name for name in names if self._values.get(name) is not None), None)
        if name is None:
            return None
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fail(name, f"must be a whole number of at least {least}, not {shortened(value)}")
        if value > MOST:
            raise self.fail(name, f"is {shortened(value)}: more than any model has")
        return value

    def need(self, *names: str) -> int:
        """A whole number that must be there."""
        value = self.count(*names)
        if value is None:
            raise self.fail(names[0], "is missing")
        return value

    def text(self, name: str) -> str:
        """A text, empty where absent."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.fail(name, f"must be text, not {shortened(value)}")
        return value or ""

    def flag(self, name: str) -> bool | None:
        """True, false or None."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.fail(name, f"must be true or false, not {shortened(value)}")
        return value

    def names(self, name: str) -> list[str] | dict[str, int] | None:
        """A list of names, one a layer, or how many layers there are of each."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        if isinstance(value, dict) and all(type(count) is int and count >= 0 for count in value.values()):
            return value
        raise self.fail(name, f"must be a list of names, not {shortened(value)}")

    def numbers(self, name: str) -> list[int] | None:
        """A list of whole numbers, none negative."""
        value = self.get(name)
        if value is not None and not (isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)):
            raise self.fail(name, f"must be a list of whole numbers, not {shortened(value)}")
        return value

    def section(self, name: str) -> Mapping[str, Any] | None:
        """A nested object."""
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self.fail(name, f"must be an object of fields, not {shortened(value)}")
        return value
