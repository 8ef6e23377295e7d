"""Nodes of a Ray cluster on this machine, which tests add and remove."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

# Ray reads these when it is first imported. Nodes that are started by hand leave authentication off where no token is
# found, so it is asked for; a token of our own keeps the tests out of the home folder.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

_TESTS = Path(__file__).resolve().parent
_STORE_BYTES = 80 * 2**20  # the least that Ray takes is 75 MB


class Nodes:
    """The cluster: a head that schedules nothing of ours but one task at a time, and others like it."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        # A node whose processes are gone is noticed after 5 looks; Ray looks every 3 seconds.
        head = {"include_dashboard": False, "_system_config": {"health_check_period_ms": 500}}
        self._cluster = Cluster(initialize_head=True, head_node_args=self._settings() | head)
        self.others = [self._cluster.add_node(wait=False, **self._settings()) for _ in range(count - 1)]
        self._cluster.wait_for_nodes(timeout=300)

    @property
    def address(self) -> str:
        """What a driver connects to."""
        return str(self._cluster.address)

    def add(self) -> Any:  # noqa: ANN401 - Ray's own node
        """One more node."""
        node = self._cluster.add_node(**self._settings())
        self.others.append(node)
        return node

    def remove(self, node: Any) -> None:  # noqa: ANN401 - Ray's own node
        """Kill a node with all that runs on it, as if its plug had been pulled."""
        self.others.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        """End every process of the cluster."""
        self._cluster.shutdown()

    @staticmethod
    def _settings() -> dict[str, Any]:
        # The workers import what tests define, and this checkout.
        path = os.pathsep.join(map(str, [_TESTS / "engines", _TESTS, _TESTS.parent]))
        # Workers are as nice as other tests: by default these would not let them run.
        environment = {"PYTHONPATH": path, "RAY_worker_niceness": "0"}
        return {"num_cpus": 1, "object_store_memory": _STORE_BYTES, "env_vars": environment}
