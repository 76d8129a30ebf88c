"""The contract: what a store promises, as tests. Each part is about one kind of verb."""

from __future__ import annotations

from holdfast.testing.contract.attaching import AttachingContract
from holdfast.testing.contract.claiming import ClaimingContract
from holdfast.testing.contract.committing import CommittingContract
from holdfast.testing.contract.descending import DescendingContract
from holdfast.testing.contract.finding import FindingContract
from holdfast.testing.contract.guarding import GuardingContract
from holdfast.testing.contract.inbox import InboxContract
from holdfast.testing.contract.keeping import KeepingContract
from holdfast.testing.contract.ledger import LedgerContract
from holdfast.testing.contract.listing import ListingContract
from holdfast.testing.contract.living import LivingContract
from holdfast.testing.contract.loading import LoadingContract
from holdfast.testing.contract.moving import MovingContract
from holdfast.testing.contract.prefixes import PrefixesContract
from holdfast.testing.contract.pruning import PruningContract
from holdfast.testing.contract.recording import RecordingContract
from holdfast.testing.contract.retreating import RetreatingContract
from holdfast.testing.contract.saving import SavingContract


class StoreContract(
    SavingContract,
    DescendingContract,
    LoadingContract,
    ListingContract,
    PrefixesContract,
    ClaimingContract,
    RecordingContract,
    LivingContract,
    KeepingContract,
    PruningContract,
    MovingContract,
    InboxContract,
    LedgerContract,
    AttachingContract,
    FindingContract,
    RetreatingContract,
    GuardingContract,
    CommittingContract,
):
    """Everything a store promises. Derive a test class from it and say how to open the store."""


__all__ = ["StoreContract"]
