"""The plugin without a browser: asked in this process, with TensorBoard's own reader of event files."""

from __future__ import annotations

import json
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from werkzeug.test import Client

from sonosco_like.tensorboard_plugin.plugin import TranscriptsPlugin

multiplexers = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_multiplexer")
providers = pytest.importorskip("tensorboard.backend.event_processing.data_provider")


class Asking:
    """The plugin on a folder of runs, read by TensorBoard in this process."""

    def __init__(self, logdir):
        self.multiplexer = multiplexers.EventMultiplexer().AddRunsFromDirectory(str(logdir))
        self.multiplexer.Reload()
        self.provider = providers.MultiplexerDataProvider(self.multiplexer, str(logdir))
        self.forget()

    def forget(self):
        """Go on without what was read already, as after the two seconds for which an answer may be old."""
        self.apps = TranscriptsPlugin(SimpleNamespace(data_provider=self.provider)).get_plugin_apps()

    def get(self, path, headers=None, **asked):
        app = self.apps["/static/*" if path.startswith("/static/") else path]
        pairs = [
            (name, each) for name, value in asked.items() for each in (value if isinstance(value, list) else [value])
        ]
        return Client(app).get(f"{path}?{urlencode(pairs)}", headers=headers or {})

    def json(self, path, **asked):
        answer = self.get(path, **asked)
        assert answer.status_code == 200, answer.get_data(as_text=True)
        return json.loads(answer.get_data())

    def rows(self, **asked):
        return self.json("/rows", **{"set": "val", "mode": "free", "step": 10**9, **asked})
