"""The store contract: what a store promises, as pytest classes, one for each subject.

`StoreContract` has all subjects. To run one alone, while a store is being written, derive from its class:

    from holdfast.testing.contract import ClaimContract

    class TestClaims(ClaimContract):
        def open_port(self, clock):
            return MyStore(clock)
"""

from __future__ import annotations

from holdfast.testing.contract.attachments import AttachmentContract, JournalContract
from holdfast.testing.contract.claims import ClaimContract
from holdfast.testing.contract.commits import CommitContract, LedgerContract
from holdfast.testing.contract.fork import ForkContract, LoadContract
from holdfast.testing.contract.gates import CatalogContract, GateContract
from holdfast.testing.contract.inbox import InboxContract
from holdfast.testing.contract.journal_prune import JournalPruningContract
from holdfast.testing.contract.lane_heads import LaneHeadContract, ParentContract
from holdfast.testing.contract.list import ListContract
from holdfast.testing.contract.liveness import LivenessContract, TakeoverContract
from holdfast.testing.contract.packs import PackContract
from holdfast.testing.contract.prune import PruneContract
from holdfast.testing.contract.save import SaveContract
from holdfast.testing.contract.search import PrefixContract, SearchContract


class StoreContract(
    SaveContract,
    ParentContract,
    LoadContract,
    ListContract,
    PrefixContract,
    ClaimContract,
    JournalContract,
    LivenessContract,
    PruneContract,
    PackContract,
    JournalPruningContract,
    ForkContract,
    InboxContract,
    GateContract,
    CatalogContract,
    LedgerContract,
    AttachmentContract,
    SearchContract,
    LaneHeadContract,
    TakeoverContract,
    CommitContract,
):
    """Everything a store promises. Derive a test class from it and define `open_port`."""


SUBJECTS = StoreContract.__bases__
"""The classes of the single subjects. No two of them define the same name, so each means the same alone."""

__all__ = [
    "SUBJECTS",
    "AttachmentContract",
    "CatalogContract",
    "ClaimContract",
    "CommitContract",
    "ForkContract",
    "GateContract",
    "InboxContract",
    "JournalContract",
    "JournalPruningContract",
    "LaneHeadContract",
    "LedgerContract",
    "ListContract",
    "LivenessContract",
    "LoadContract",
    "PackContract",
    "ParentContract",
    "PrefixContract",
    "PruneContract",
    "SaveContract",
    "SearchContract",
    "StoreContract",
    "TakeoverContract",
]
