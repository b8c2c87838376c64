"""Property tests draw at most a hundred examples and stop at the first that fails: a mutant is to be killed, not shown."""

from functools import wraps

from hypothesis import Phase, settings

MOST = 100
made = settings.__init__


@wraps(made)
def few(self, *args, **changes):
    if changes.get("max_examples"):
        changes["max_examples"] = min(changes["max_examples"], MOST)
    made(self, *args, **changes)


settings.__init__ = few


def pytest_configure(config):
    settings.register_profile("mutation", derandomize=True, deadline=None, database=None, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("mutation")
